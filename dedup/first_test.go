package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// firstOnly is an option.
func firstOnly(r *dedup.Request) { r.FirstOnly = true }

func firstReq(key string) dedup.Request {
	r := keyed(key)
	r.FirstOnly = true
	return r
}

// wantLeft insists on a claim whose key was left to those who ask for more.
func wantLeft(t *testing.T, c *dedup.Claim, attempt int) {
	t.Helper()
	wantOutcome(t, c, dedup.InFlight)
	if c.Attempt != attempt || c.Record.Attempt != attempt || c.Record.Remaining > 0 {
		t.Errorf("attempt %d of %+v, want %d and nothing remaining", c.Attempt, c.Record, attempt)
	}
}

// tried releases a key after an attempt that counts.
func tried(t *testing.T, d *dedup.Deduper, key string) {
	t.Helper()
	if err := acquire(t, d, key).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFirstOnlyLeavesWhatWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		tried(t, d, "k")
		for range 5 {
			wantLeft(t, claim(t, d, "k", firstOnly), 1)
			wantLeft(t, claimBatch(t, d, firstReq("k"))[0], 1)
		}
		_, err := dedup.Do(t.Context(), d, "k", mustNotRun(t), firstOnly)
		wantErr(t, err, dedup.ErrInFlight)
		if c := acquire(t, d, "k"); c.Attempt != 2 {
			t.Errorf("attempt %d, want 2", c.Attempt)
		}
		if c := claim(t, d, "k", firstOnly); c.Outcome != dedup.InFlight || c.Record.Remaining <= 0 {
			t.Errorf("of a live claim: %v, %+v", c.Outcome, c.Record)
		}
		time.Sleep(2 * lease)
		wantLeft(t, claim(t, d, "k", firstOnly), 2) // lapsed
	})
}

// A key that was given back by all who had it counts as new.
func TestFirstOnlyGetsWhatWasNeverBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		for range 3 {
			claims := claimBatch(t, d, firstReq("k"))
			wantOutcome(t, claims[0], dedup.Acquired)
			if errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claims[0], Err: errNet, Unused: true}}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}

// A call that asks for more does not end with what one was told that did not, and the
// other way round nobody asks twice.
func TestFirstOnlyIsNotSharedAway(t *testing.T) {
	for name, row := range map[string]struct {
		leader, follower func(*dedup.Request)
		led, followed    dedup.Outcome
		calls            int
	}{
		"first, then any":        {firstOnly, dedup.WithScope(""), dedup.InFlight, dedup.Acquired, 2},
		"first, then first":      {firstOnly, firstOnly, dedup.InFlight, dedup.InFlight, 1},
		"any, then first":        {dedup.WithScope(""), firstOnly, dedup.Acquired, dedup.InFlight, 1},
		"first, then takes over": {firstOnly, consumed(6, true), dedup.InFlight, dedup.Acquired, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				tried(t, d, "k")
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

// Many first calls of a newer generation share one answer; they do not ask one after the
// other for what none of them would take over.
func TestFirstCallsShareWhatTheyLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		acquire(t, d, "k", consumed(5, false))
		store.forgetCalls()
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var claims []<-chan *dedup.Claim
		for range 100 {
			claims = append(claims, inBackground(t, d, func(r *dedup.Request) { consumed(6, true)(r); r.FirstOnly = true }))
		}
		for _, done := range claims {
			wantLeft(t, <-done, 1)
		}
		if n := store.count("Claim"); n != 1 {
			t.Errorf("%d calls to the store", n)
		}
	})
}

// In a batch a repetition that asks for more is claimed by itself, and is not an alias.
func TestFirstOnlyInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		for _, key := range []string{"a", "b"} {
			tried(t, d, key)
		}
		claims := claimBatch(t, d, firstReq("a"), keyed("a"), firstReq("b"), firstReq("b"), keyed("c"), firstReq("c"))
		wantLeft(t, claims[0], 1)
		wantOutcome(t, claims[1], dedup.Acquired)
		wantLeft(t, claims[2], 1)
		wantLeft(t, claims[3], 1)
		wantOutcome(t, claims[4], dedup.Acquired)
		wantOutcome(t, claims[5], dedup.InFlight)
		aliases := []*dedup.Claim{nil, nil, nil, claims[2], nil, claims[4]}
		for i, c := range claims {
			if c.Alias != aliases[i] {
				t.Errorf("item %d is an alias of %v", i, c.Alias)
			}
		}
		if rec := claims[1].Attempt; rec != 2 {
			t.Errorf("attempt %d, want 2", rec)
		}
	})
}

// There is nobody to wait for.
func TestFirstOnlyDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), func(c *dedup.Config) { c.Wait = time.Minute })
		tried(t, d, "k")
		start := time.Now()
		wantLeft(t, claim(t, d, "k", firstOnly), 1)
		if took := time.Since(start); took > 0 {
			t.Errorf("waited for %v", took)
		}
	})
}

// Observe runs the messages that Enforce would skip. A message that is left to a later call is not
// skipped: it is claimed again, and then it runs under a claim that records it.
func TestFirstOnlyIsNotOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		tried(t, d, "k")
		wantLeft(t, claim(t, d, "k", firstOnly), 1)
		wantLeft(t, claimBatch(t, d, firstReq("k"), firstReq("k"))[1], 1)
		told.want(t, "would skip", 0)
		if rec := lookup(t, store, "k"); rec.State != dedup.StateReleased || rec.Attempt != 1 {
			t.Errorf("it was counted: %+v", rec)
		}
		c := acquire(t, d, "k")
		if c.Observed != dedup.Acquired || c.Attempt != 2 {
			t.Errorf("asked again: %v, attempt %d", c.Observed, c.Attempt)
		}
		if c := claim(t, d, "k", firstOnly); c.Outcome != dedup.Acquired || c.Observed != dedup.InFlight {
			t.Errorf("of a live claim: %v, observed %v", c.Outcome, c.Observed)
		}
		told.want(t, "would skip", 1)
	})
}

// FailOpen is for a store that cannot be asked, and a key that was left alone is an answer.
func TestFirstOnlyDoesNotFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		tried(t, d, "k")
		wantLeft(t, claim(t, d, "k", firstOnly), 1)
		told.want(t, "failed open", 0)
		store.setBefore(down)
		wantOutcome(t, claim(t, d, "k", firstOnly), dedup.Acquired)
		told.want(t, "failed open", 1)
	})
}

// Finding out is an attempt, too. A call that may find out does not share the answer of one
// that may not.
func TestFirstOnlyDoesNotResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		asked := 0
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
				asked++
				return dedup.StateSucceeded, nil, nil
			}
		})
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		if err := dedup.Danger(ctx); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, claim(t, d, "k", firstOnly), dedup.Uncertain)
		if rec := lookup(t, store, "k"); rec.Attempt != 1 || asked > 0 {
			t.Errorf("asked %d times, attempt %d", asked, rec.Attempt)
		}
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		leader := inBackground(t, d, firstOnly)
		synctest.Wait()
		wantOutcome(t, claim(t, d, "k"), dedup.Duplicate)
		wantOutcome(t, <-leader, dedup.Uncertain)
	})
}
