package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// pairing is a hooked store that ends and claims in one round trip of a millisecond, whose answers
// a test may cut.
type pairing struct {
	*hooked
	both     atomic.Int64
	cut      atomic.Int64 // answers that are missing
	mu       sync.Mutex
	repeated []driver.ID // that came twice in one call
}

func (p *pairing) FinishClaim(ctx context.Context, ends []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	p.both.Add(1)
	seen := map[driver.ID]bool{}
	note := func(id driver.ID) {
		if seen[id] {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.repeated = append(p.repeated, id)
		}
		seen[id] = true
	}
	for i := range ends {
		note(ends[i].ID)
	}
	for i := range reqs {
		note(reqs[i].ID)
	}
	time.Sleep(time.Millisecond)
	ended, claimed = p.inner.Finish(ctx, ends), p.inner.Claim(ctx, reqs)
	cut := int(p.cut.Load())
	return ended[:max(len(ended)-cut, 0)], claimed[:max(len(claimed)-cut, 0)]
}

// trip makes a call of one kind take as long as a call of both kinds.
func trip(call) error { time.Sleep(time.Millisecond); return nil }

// Many callers' claims and ends share round trips. No key is in one round trip twice, because an
// end and another caller's claim have no order in it.
func TestCrowdSharesRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pairing{hooked: hook()}
		p.setBefore(trip)
		d := newDeduper(t, p, func(c *dedup.Config) { c.Wait = time.Minute })
		const callers, each = 200, 20
		runs := make([]atomic.Int64, callers*each)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for n := range each {
					key := (caller/2)*each + n // two callers each
					_, err := dedup.Do(t.Context(), d, fmt.Sprint(key),
						func(context.Context) (struct{}, error) {
							runs[key].Add(1)
							return struct{}{}, nil
						})
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		for key := range callers / 2 * each {
			require.Equal(t, int64(1), runs[key].Load(), "key %d", key)
		}
		assert.Empty(t, p.repeated)
		// Their number depends on the scheduler; without sharing there are none.
		assert.Greater(t, 2*p.both.Load(), int64(p.count("Claim", "Finish")),
			"a third of the round trips have both")
	})
}

// A store that gives too few answers for a batch has answered none of it.
func TestCrowdWithTooFewAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pairing{hooked: hook()}
		p.setBefore(trip)
		d := newDeduper(t, p, nil)
		p.cut.Store(1)
		var done, unknown atomic.Int64
		var wg sync.WaitGroup
		for caller := range 100 {
			wg.Go(func() {
				for n := range 10 {
					key := fmt.Sprint(caller, " ", n)
					_, err := dedup.Do(t.Context(), d, key,
						func(context.Context) (struct{}, error) { return struct{}{}, nil })
					if err == nil {
						done.Add(1)
						assert.Equal(t, driver.StateSucceeded, lookup(t, p.hooked, key).State)
						continue
					}
					assert.True(t, dedup.OutcomeUnknown(err), err)
					unknown.Add(1)
				}
			})
		}
		wg.Wait()
		assert.NotZero(t, p.both.Load())
		assert.Equal(t, int64(1000), done.Load()+unknown.Load())
		time.Sleep(time.Hour) // the releases of the claims without an answer
	})
}

// Callers leave while a round trip with ends and claims is under way. The claims are given back,
// and the ends that were reported as written stay.
func TestCallersOfACrowdThatGo(t *testing.T) {
	for name, cut := range map[string]int64{"answered": 0, "not answered": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leaveACrowd(t, cut) })
		})
	}
}

func leaveACrowd(t *testing.T, cut int64) {
	p := &pairing{hooked: hook()}
	d := newDeduper(t, p, nil)
	var held []*dedup.Claim
	for n := range 40 {
		held = append(held, acquire(t, d, fmt.Sprint("held ", n)))
	}
	p.setBefore(trip)
	p.cut.Store(cut)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n, c := range held {
		wg.Go(func() { _ = c.Complete(ctx, nil) })
		wg.Go(func() {
			c, err := d.Claim(ctx, fmt.Sprint("new ", n))
			if err == nil {
				assert.NoError(t, c.Release(t.Context()))
			}
		})
	}
	time.Sleep(500 * time.Microsecond) // in the middle of the first round trip
	require.NotZero(t, p.both.Load())
	cancel()
	wg.Wait()
	wantFree(t, p.hooked, "none")
	for n := range held {
		assert.NotEqual(t, driver.StateInProgress, lookup(t, p.hooked, fmt.Sprint("new ", n)).State)
		if held[n].Complete(t.Context(), nil) == nil {
			wantState(t, p.hooked, fmt.Sprint("held ", n), driver.StateSucceeded)
		}
	}
}
