package deduptest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// fiveClaims sends one batch of five fresh claims through the fault. It returns which items
// were answered and which are in the store.
func fiveClaims(t *testing.T, f *Faulty) (answered, executed []bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	reqs := make([]driver.ClaimRequest, 5)
	ids := make([]driver.ID, 5)
	for i := range reqs {
		ids[i] = newID()
		reqs[i] = driver.ClaimRequest{ID: ids[i], Token: newToken(), Lease: long, Hold: long}
	}
	for i, a := range f.Claim(ctx, reqs) {
		assert.False(t, a.Err != nil &&
			(!errors.Is(a.Err, ErrInjected) || a.Outcome != dedup.Unknown), "item %d: %s, %v", i,
			describe(a), a.Err)
		answered = append(answered, a.Outcome == dedup.Acquired)
	}
	for _, a := range f.store.Lookup(t.Context(), ids) {
		executed = append(executed, a.Record.State == driver.StateInProgress)
	}
	return answered, executed
}

// bits spells a list of five: "11000" is the first two.
func bits(s string) []bool {
	out := make([]bool, len(s))
	for i := range s {
		out[i] = s[i] == '1'
	}
	return out
}

func TestFaultKinds(t *testing.T) {
	for _, row := range []struct {
		fault              Fault
		answered, executed string
		requests, replies  int
	}{
		{Fault{}, "11111", "11111", 0, 0},
		{Fault{Kind: DropRequest}, "00000", "00000", 5, 0},
		{Fault{Kind: DropRequest, Item: 2}, "11000", "11000", 3, 0},
		{Fault{Kind: DropReply}, "00000", "11111", 0, 5},
		{Fault{Kind: DropReply, Item: 4}, "11110", "11111", 0, 1},
		{Fault{Kind: DropReply, Item: 5}, "11111", "11111", 0, 0},
		{Fault{Kind: FailItem}, "01111", "01111", 1, 0},
		{Fault{Kind: FailItem, Item: 3}, "11101", "11101", 1, 0},
		{Fault{Kind: FailItem, Item: 9}, "11111", "11111", 0, 0},
		{Fault{Kind: Hang}, "00000", "00000", 5, 0},
		{Fault{Kind: HangReply, Item: 3}, "00000", "11111", 0, 5},
	} {
		t.Run(fmt.Sprintf("%s from %d", row.fault.Kind, row.fault.Item), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFaulty(dedup.Memory(100), Script(OpClaim, row.fault))
				start := time.Now()
				answered, executed := fiveClaims(t, f)
				assert.Equal(t, bits(row.answered), answered)
				assert.Equal(t, bits(row.executed), executed)
				stats := f.Stats()
				assert.Equal(t, row.requests, stats.LostRequests)
				assert.Equal(t, row.replies, stats.LostReplies)
				assert.Equal(t, 1, stats.Calls[OpClaim])
				hit := 0
				if row.requests+row.replies > 0 {
					hit = 1
				}
				assert.Equal(t, hit, stats.Faults[row.fault.Kind])
				hangs := row.fault.Kind == Hang || row.fault.Kind == HangReply
				assert.Equal(t, hangs, time.Since(start) == time.Second)
				// The script is over.
				answered, executed = fiveClaims(t, f)
				assert.Equal(t, bits("11111"), answered, "after the script")
				assert.Equal(t, bits("11111"), executed)
			})
		})
	}
}

// Each method suffers under its own name, and the others do not.
func TestFaultsOfEachMethod(t *testing.T) {
	calls := map[Op]func(context.Context, *Faulty, *owner) error{
		OpClaim: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Claim(ctx, []driver.ClaimRequest{o.request()})[0].Err
		},
		OpRenew: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Renew(ctx, []driver.Renewal{o.renewal()})[0].Err
		},
		OpFinish: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Finish(ctx, []driver.Finish{o.change(driver.StateSucceeded)})[0].Err
		},
		OpLookup: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Lookup(ctx, []driver.ID{o.id})[0].Err
		},
		OpForget: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Forget(ctx, []driver.ID{o.id}, long)[0]
		},
	}
	for bad := range calls {
		for op, call := range calls {
			f := NewFaulty(dedup.Memory(100), Script(bad, Fault{Kind: DropRequest}))
			err := call(t.Context(), f, (&check{}).stranger(newID()))
			got := errors.Is(err, ErrInjected)
			assert.Equal(t, op == bad, got, "%s under a fault of %s: %v", op, bad, err)
			f.SetPlan(nil)
			err = call(t.Context(), f, (&check{}).stranger(newID()))
			assert.NoError(t, err, "%s of a healed store", op)
			assert.Equal(t, 2, f.Stats().Calls[op], op)
		}
	}
}

// One seed is one sequence, and its rate is about what was asked for.
func TestSeededRepeats(t *testing.T) {
	sequence := func(seed uint64, rate float64) (faults []Fault, hits int) {
		plan := Seeded(seed, rate)
		for n := range 2000 {
			fault := plan(Call{Op: OpClaim, Number: n + 1, Items: 8})
			if fault.Kind != Pass {
				hits++
			}
			require.GreaterOrEqual(t, fault.Item, 0)
			require.LessOrEqual(t, fault.Item, 7)
			faults = append(faults, fault)
		}
		return faults, hits
	}
	one, hits := sequence(1, 0.3)
	again, _ := sequence(1, 0.3)
	assert.Equal(t, again, one, "one seed gave two sequences")
	other, _ := sequence(2, 0.3)
	assert.NotEqual(t, other, one, "two seeds gave one sequence")
	assert.GreaterOrEqual(t, hits, 500)
	assert.LessOrEqual(t, hits, 700)
	_, hits = sequence(1, 0)
	assert.Equal(t, 0, hits, "at a rate of 0")
	_, hits = sequence(1, 1)
	assert.Equal(t, 2000, hits, "at a rate of 1")
}

// The suite must fail over a store that loses replies, because Faulty does not keep the contract.
func TestFaultyFailsTheSuite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := recordSuite(t, Harness{New: func(testing.TB) dedup.Store {
			return NewFaulty(dedup.Memory(1<<16), Seeded(1, 0.5))
		}})
		assert.GreaterOrEqual(t, len(said), 20, "red properties")
	})
}
