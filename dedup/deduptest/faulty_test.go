package deduptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// fiveClaims sends one batch of five fresh claims through the fault. It returns which items
// were answered and which are in the store.
func fiveClaims(t *testing.T, f *Faulty) (answered, executed []bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	reqs := make([]dedup.ClaimRequest, 5)
	ids := make([]dedup.ID, 5)
	for i := range reqs {
		ids[i] = newID()
		reqs[i] = dedup.ClaimRequest{ID: ids[i], Token: newToken(), Lease: long, Hold: long}
	}
	for i, a := range f.Claim(ctx, reqs) {
		if a.Err != nil && (!errors.Is(a.Err, ErrInjected) || a.Outcome != dedup.Unknown) {
			t.Errorf("item %d: %s, %v", i, describe(a), a.Err)
		}
		answered = append(answered, a.Outcome == dedup.Acquired)
	}
	for _, a := range f.store.Lookup(t.Context(), ids) {
		executed = append(executed, a.Record.State == dedup.StateInProgress)
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
				if !slices.Equal(answered, bits(row.answered)) || !slices.Equal(executed, bits(row.executed)) {
					t.Errorf("answered %v, executed %v", answered, executed)
				}
				stats := f.Stats()
				if stats.LostRequests != row.requests || stats.LostReplies != row.replies || stats.Calls[OpClaim] != 1 {
					t.Errorf("stats %+v", stats)
				}
				hit := 0
				if row.requests+row.replies > 0 {
					hit = 1
				}
				if stats.Faults[row.fault.Kind] != hit {
					t.Errorf("faults counted: %v", stats.Faults)
				}
				hangs := row.fault.Kind == Hang || row.fault.Kind == HangReply
				if waited := time.Since(start); hangs != (waited == time.Second) {
					t.Errorf("returned after %v", waited)
				}
				// The script is over.
				answered, executed = fiveClaims(t, f)
				if !slices.Equal(answered, bits("11111")) || !slices.Equal(executed, bits("11111")) {
					t.Errorf("after the script: answered %v, executed %v", answered, executed)
				}
			})
		})
	}
}

// Each method suffers under its own name, and the others do not.
func TestFaultsOfEachMethod(t *testing.T) {
	calls := map[Op]func(context.Context, *Faulty, *owner) error{
		OpClaim: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Claim(ctx, []dedup.ClaimRequest{o.request()})[0].Err
		},
		OpRenew: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Renew(ctx, []dedup.Change{o.change(dedup.StateAbsent)})[0].Err
		},
		OpFinish: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Finish(ctx, []dedup.Change{o.change(dedup.StateSucceeded)})[0].Err
		},
		OpLookup: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Lookup(ctx, []dedup.ID{o.id})[0].Err
		},
		OpForget: func(ctx context.Context, f *Faulty, o *owner) error {
			return f.Forget(ctx, []dedup.ID{o.id}, long)[0]
		},
	}
	for bad := range calls {
		for op, call := range calls {
			f := NewFaulty(dedup.Memory(100), Script(bad, Fault{Kind: DropRequest}))
			err := call(t.Context(), f, (&check{}).stranger(newID()))
			if got := errors.Is(err, ErrInjected); got != (op == bad) {
				t.Errorf("%s under a fault of %s: %v", op, bad, err)
			}
			f.SetPlan(nil)
			if err := call(t.Context(), f, (&check{}).stranger(newID())); err != nil {
				t.Errorf("%s of a healed store: %v", op, err)
			}
			if n := f.Stats().Calls[op]; n != 2 {
				t.Errorf("%d calls of %s counted", n, op)
			}
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
			if fault.Item < 0 || fault.Item > 7 {
				t.Fatalf("item %d of 8", fault.Item)
			}
			faults = append(faults, fault)
		}
		return faults, hits
	}
	one, hits := sequence(1, 0.3)
	if again, _ := sequence(1, 0.3); !slices.Equal(one, again) {
		t.Error("one seed gave two sequences")
	}
	if other, _ := sequence(2, 0.3); slices.Equal(one, other) {
		t.Error("two seeds gave one sequence")
	}
	if hits < 500 || hits > 700 {
		t.Errorf("%d of 2000 calls hit at a rate of 0.3", hits)
	}
	if _, hits := sequence(1, 0); hits != 0 {
		t.Errorf("%d hits at a rate of 0", hits)
	}
	if _, hits := sequence(1, 1); hits != 2000 {
		t.Errorf("%d hits of 2000 at a rate of 1", hits)
	}
}

// The suite is red over a store that loses replies: nobody may take Faulty for a store
// that keeps the contract.
func TestFaultyFailsTheSuite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := recordSuite(t, Harness{New: func(testing.TB) dedup.Store {
			return NewFaulty(dedup.Memory(1<<16), Seeded(1, 0.5))
		}})
		if len(said) < 20 {
			t.Errorf("only %d properties are red", len(said))
		}
	})
}
