package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// consumed is an option: a message of partition 1, claimed in a generation.
func consumed(generation int32, takes bool) dedup.Option {
	return func(r *dedup.Request) {
		r.Origin = driver.Origin{Source: "group/topic", Partition: 1, Offset: 7,
			Generation: generation}
		r.TakeOverOlderGeneration = takes
	}
}

func consumedReq(key string, generation int32, takes bool) dedup.Request {
	r := keyed(key)
	consumed(generation, takes)(&r)
	return r
}

// The new owner does not wait for the lease of the old one. The old owner learns that it has lost
// the key, and its late end changes nothing.
func TestNewerGenerationTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		old, next := newDeduper(t, store, nil), newDeduper(t, store, nil)
		a := acquire(t, old, "k", consumed(5, false))
		running, stop := a.KeepAlive(t.Context())
		defer stop()
		require.Equal(t, dedup.InFlight, claim(t, next, "k", consumed(6, false)).Outcome)
		b := acquire(t, next, "k", consumed(6, true))
		assert.Equal(t, 2, b.Attempt)
		assert.Greater(t, b.Fence(), a.Fence())
		select {
		case <-running.Done():
			require.ErrorIs(t, context.Cause(running), dedup.ErrLeaseLost)
		case <-time.After(lease):
			t.Error("the older owner was not told within its lease")
		}
		assert.ErrorIs(t, a.Release(t.Context()), dedup.ErrLeaseLost, "the older owner's release")
		assert.NoError(t, b.Complete(t.Context(), nil), "the newer owner's completion")
	})
}

// If the effect of the older owner has landed anyway, it is put on record, and the newer owner gets
// ErrLeaseLost.
func TestAppliedEffectOfAnOlderGenerationIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		a := acquire(t, d, "k", consumed(5, true))
		b := acquire(t, d, "k", consumed(6, true))
		require.ErrorIs(t, a.Complete(t.Context(), []byte("old")), dedup.ErrLeaseLost)
		assert.Equal(t, "old", string(wantState(t, store, "k", driver.StateSucceeded).Result))
		require.ErrorIs(t, b.Complete(t.Context(), []byte("new")), dedup.ErrLeaseLost)
	})
}

// Two calls of one key in one process share a claim attempt. They do not if the generation of the
// second takes over the claim that the first has won or met.
func TestTakeoverIsNotSharedAway(t *testing.T) {
	for name, row := range map[string]struct {
		held             int32 // generation of a claim elsewhere; 0 for none
		leader, follower dedup.Option
		led, followed    driver.Outcome
		calls            int
	}{
		"newer than the leader": {0, consumed(5, true), consumed(6, true), dedup.Acquired,
			dedup.Acquired, 2},
		"newer, and does not take over": {0, consumed(5, true), consumed(6, false),
			dedup.Acquired, dedup.InFlight, 1},
		"no newer than the leader": {0, consumed(6, true), consumed(6, true), dedup.Acquired,
			dedup.InFlight, 1},
		"older than the leader": {0, consumed(6, true), consumed(5, true), dedup.Acquired,
			dedup.InFlight, 1},
		"the leader has no origin": {0, dedup.WithScope(""), consumed(6, true),
			dedup.Acquired, dedup.InFlight, 1},
		"the leader does not take over": {4, consumed(5, false), consumed(5, true),
			dedup.InFlight, dedup.Acquired, 2},
		"the leader is too old": {5, consumed(5, true), consumed(6, true), dedup.InFlight,
			dedup.Acquired, 2},
		"both are too old": {6, consumed(5, true), consumed(6, true), dedup.InFlight,
			dedup.InFlight, 1},
		"the leader has taken over first": {4, consumed(5, true), consumed(5, true), dedup.Acquired,
			dedup.InFlight, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
				if row.held > 0 {
					acquire(t, other, "k", consumed(row.held, false))
				}
				store.forgetCalls()
				store.setBefore(only("Claim", func(call) error {
					time.Sleep(time.Second)
					return nil
				}))
				leader := inBackground(t, d, row.leader)
				synctest.Wait()
				follower := inBackground(t, d, row.follower)
				require.Equal(t, row.led, (<-leader).Outcome)
				require.Equal(t, row.followed, (<-follower).Outcome)
				assert.Equal(t, row.calls, store.count("Claim"))
			})
		})
	}
}

// A claim that was declared irreversible is not taken over, so the follower does not ask again.
func TestFollowerDoesNotAskPastMarkIrreversible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		ctx, stop := acquire(t, other, "k", consumed(5, false)).KeepAlive(t.Context())
		defer stop()
		require.NoError(t, dedup.MarkIrreversible(ctx))
		store.forgetCalls()
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		leader := inBackground(t, d, consumed(6, false))
		synctest.Wait()
		require.Equal(t, dedup.InFlight, claim(t, d, "k", consumed(6, true)).Outcome)
		require.Equal(t, dedup.InFlight, (<-leader).Outcome)
		assert.Equal(t, 1, store.count("Claim"), "calls to the store")
	})
}

// Many calls of the newer generation at once: one takes over, the others share its answer.
func TestOneCallOfManyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		acquire(t, d, "k", consumed(5, false))
		store.forgetCalls()
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var claims []<-chan *dedup.Claim
		for range 100 {
			claims = append(claims, inBackground(t, d, consumed(6, true)))
		}
		won := 0
		for _, done := range claims {
			if c := <-done; c.Outcome == dedup.Acquired {
				won++
			} else {
				require.Equal(t, dedup.InFlight, c.Outcome)
			}
		}
		assert.Equal(t, 1, won)
		assert.Equal(t, 1, store.count("Claim"))
	})
}

// A batch does not share the attempt of a single call that is under way. In a batch, a repetition
// is claimed if it takes over the owner that the first has met, but not if the first has won.
func TestClaimBatchTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		acquire(t, other, "a", consumed(5, false))
		acquire(t, other, "b", consumed(5, false))
		claims := claimBatch(t, d, consumedReq("a", 6, true), consumedReq("b", 6, false),
			consumedReq("b", 6, true),
			consumedReq("b", 6, true), consumedReq("c", 6, true), consumedReq("c", 7, true))
		for i, want := range []driver.Outcome{
			dedup.Acquired, dedup.InFlight, dedup.Acquired,
			dedup.InFlight, dedup.Acquired, dedup.InFlight,
		} {
			require.Equal(t, want, claims[i].Outcome)
		}
		assert.Nil(t, claims[2].Alias)
		assert.Equal(t, 2, claims[2].Attempt)
		assert.Same(t, claims[4], claims[5].Alias)
		store.setBefore(only("Claim", func(c call) error {
			if c.items == 1 {
				time.Sleep(time.Second)
			}
			return nil
		}))
		single := inBackground(t, d, consumed(7, true))
		synctest.Wait()
		require.Equal(t, dedup.Acquired,
			claimBatch(t, d, consumedReq("k", 5, true), consumedReq("d", 5, true))[0].Outcome)
		require.Equal(t, dedup.Acquired, (<-single).Outcome)
	})
}

// claimsFirst is a store that executes the claims of a FinishClaim before its ends.
type claimsFirst struct{ *hooked }

func (s *claimsFirst) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	claimed = s.inner.Claim(ctx, reqs)
	return s.inner.Finish(ctx, changes), claimed
}

// A claim that is being completed is not taken over in the same round trip: its effect would run
// again.
func TestCompleteAndClaimDoesNotTakeOverWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &claimsFirst{hook()}
		d := newDeduper(t, store, nil)
		claims := claimBatch(t, d, consumedReq("a", 5, true), consumedReq("b", 5, true))
		errs, next, err := d.CompleteAndClaim(t.Context(), completions(claims[:1]), []dedup.Request{
			consumedReq("a", 6, true), consumedReq("b", 6, true),
		})
		require.Nil(t, errs)
		require.NoError(t, err)
		require.Equal(t, dedup.InFlight, next[0].Outcome)
		require.Equal(t, dedup.Acquired, next[1].Outcome)
		wantState(t, store.hooked, "a", driver.StateSucceeded)
	})
}
