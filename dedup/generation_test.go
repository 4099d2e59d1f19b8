package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// consumed is an option: a message of partition 1, claimed in a generation.
func consumed(generation int32, takes bool) dedup.Option {
	return func(r *dedup.Request) {
		r.Origin = dedup.Origin{Source: "group/topic", Partition: 1, Offset: 7, Generation: generation}
		r.TakeOverOlderGeneration = takes
	}
}

func consumedReq(key string, generation int32, takes bool) dedup.Request {
	r := keyed(key)
	consumed(generation, takes)(&r)
	return r
}

// The message's new owner does not wait for the lease of the old one, which learns that
// it has lost the key, and whose late end changes nothing.
func TestNewerGenerationTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		old, next := newDeduper(t, store, nil), newDeduper(t, store, nil)
		a := acquire(t, old, "k", consumed(5, false))
		running, stop := a.KeepAlive(t.Context())
		defer stop()
		wantOutcome(t, claim(t, next, "k", consumed(6, false)), dedup.InFlight)
		b := acquire(t, next, "k", consumed(6, true))
		if b.Attempt != 2 || b.Fence() <= a.Fence() {
			t.Errorf("attempt %d, fence %d after %d", b.Attempt, b.Fence(), a.Fence())
		}
		select {
		case <-running.Done():
			wantErr(t, context.Cause(running), dedup.ErrLeaseLost)
		case <-time.After(lease):
			t.Error("the older owner was not told within its lease")
		}
		if err := a.Release(t.Context()); !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("the older owner's release: %v", err)
		}
		if err := b.Complete(t.Context(), nil); err != nil {
			t.Errorf("the newer owner's completion: %v", err)
		}
	})
}

// An effect of the older owner that has landed all the same is put on record, and the
// newer owner is told.
func TestLandedEffectOfAnOlderGenerationIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		a := acquire(t, d, "k", consumed(5, true))
		b := acquire(t, d, "k", consumed(6, true))
		wantErr(t, a.Complete(t.Context(), []byte("old")), dedup.ErrLeaseLost)
		if rec := wantState(t, store, "k", dedup.StateSucceeded); string(rec.Result) != "old" {
			t.Errorf("result %q", rec.Result)
		}
		wantErr(t, b.Complete(t.Context(), []byte("new")), dedup.ErrLeaseLost)
	})
}

// Two calls of one key in one process share a claim attempt, but not when the second is
// of a generation that takes over what the first has won or met.
func TestTakeoverIsNotSharedAway(t *testing.T) {
	for name, row := range map[string]struct {
		held             int32 // generation of a claim elsewhere; 0 for none
		leader, follower dedup.Option
		led, followed    dedup.Outcome
		calls            int
	}{
		"newer than the leader":           {0, consumed(5, true), consumed(6, true), dedup.Acquired, dedup.Acquired, 2},
		"newer, and does not take over":   {0, consumed(5, true), consumed(6, false), dedup.Acquired, dedup.InFlight, 1},
		"no newer than the leader":        {0, consumed(6, true), consumed(6, true), dedup.Acquired, dedup.InFlight, 1},
		"older than the leader":           {0, consumed(6, true), consumed(5, true), dedup.Acquired, dedup.InFlight, 1},
		"the leader has no origin":        {0, dedup.WithScope(""), consumed(6, true), dedup.Acquired, dedup.InFlight, 1},
		"the leader does not take over":   {4, consumed(5, false), consumed(5, true), dedup.InFlight, dedup.Acquired, 2},
		"the leader is too old":           {5, consumed(5, true), consumed(6, true), dedup.InFlight, dedup.Acquired, 2},
		"both are too old":                {6, consumed(5, true), consumed(6, true), dedup.InFlight, dedup.InFlight, 1},
		"the leader has taken over first": {4, consumed(5, true), consumed(5, true), dedup.Acquired, dedup.InFlight, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
				if row.held > 0 {
					acquire(t, other, "k", consumed(row.held, false))
				}
				store.forgetCalls()
				store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
				leader := inBackground(t, d, row.leader)
				synctest.Wait()
				follower := inBackground(t, d, row.follower)
				wantOutcome(t, <-leader, row.led)
				wantOutcome(t, <-follower, row.followed)
				if n := store.count("Claim"); n != row.calls {
					t.Errorf("%d calls to the store, want %d", n, row.calls)
				}
			})
		})
	}
}

// A claim in danger is not asked for again and again.
func TestFollowerDoesNotAskPastDanger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		ctx, stop := acquire(t, other, "k", consumed(5, false)).KeepAlive(t.Context())
		defer stop()
		if err := dedup.Danger(ctx); err != nil {
			t.Fatal(err)
		}
		store.forgetCalls()
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		leader := inBackground(t, d, consumed(6, false))
		synctest.Wait()
		wantOutcome(t, claim(t, d, "k", consumed(6, true)), dedup.InFlight)
		wantOutcome(t, <-leader, dedup.InFlight)
		if n := store.count("Claim"); n != 1 {
			t.Errorf("%d calls to the store", n)
		}
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
				wantOutcome(t, c, dedup.InFlight)
			}
		}
		if won != 1 || store.count("Claim") != 1 {
			t.Errorf("%d won in %d calls", won, store.count("Claim"))
		}
	})
}

// A batch asks for itself while a single call is under way. In a batch a repetition is claimed
// when it takes over the owner that its first has met, but not when the first has won.
func TestClaimBatchTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		acquire(t, other, "a", consumed(5, false))
		acquire(t, other, "b", consumed(5, false))
		claims := claimBatch(t, d, consumedReq("a", 6, true), consumedReq("b", 6, false), consumedReq("b", 6, true),
			consumedReq("b", 6, true), consumedReq("c", 6, true), consumedReq("c", 7, true))
		for i, want := range []dedup.Outcome{
			dedup.Acquired, dedup.InFlight, dedup.Acquired,
			dedup.InFlight, dedup.Acquired, dedup.InFlight,
		} {
			wantOutcome(t, claims[i], want)
		}
		if claims[2].Alias != nil || claims[2].Attempt != 2 || claims[5].Alias != claims[4] {
			t.Errorf("attempt %d, aliases of %v and %v", claims[2].Attempt, claims[2].Alias, claims[5].Alias)
		}
		store.setBefore(only("Claim", func(c call) error {
			if c.items == 1 {
				time.Sleep(time.Second)
			}
			return nil
		}))
		single := inBackground(t, d, consumed(7, true))
		synctest.Wait()
		wantOutcome(t, claimBatch(t, d, consumedReq("k", 5, true), consumedReq("d", 5, true))[0], dedup.Acquired)
		wantOutcome(t, <-single, dedup.Acquired)
	})
}

// claimsFirst is a store that executes the claims of a FinishClaim before its ends.
type claimsFirst struct{ *hooked }

func (s *claimsFirst) FinishClaim(ctx context.Context, changes []dedup.Change, reqs []dedup.ClaimRequest) (ended, claimed []dedup.Answer) {
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
		if errs != nil || err != nil {
			t.Fatalf("%v, %v", errs, err)
		}
		wantOutcome(t, next[0], dedup.InFlight)
		wantOutcome(t, next[1], dedup.Acquired)
		wantState(t, store.hooked, "a", dedup.StateSucceeded)
	})
}
