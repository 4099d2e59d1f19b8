package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

func observing(told *journal) func(*dedup.Config) {
	return func(c *dedup.Config) { c.ObserveOnly, c.Observer = true, told.observer() }
}

func failingOpen(told *journal) func(*dedup.Config) {
	return func(c *dedup.Config) { c.FailOpen, c.Observer = true, told.observer() }
}

// runs counts how often Do runs its effect, and insists that it succeeds.
func runs(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) int {
	t.Helper()
	n := 0
	res, err := dedup.Do(t.Context(), d, key, func(context.Context) (string, error) { n++; return "v", nil }, opts...)
	if err != nil || res.Value != "v" || res.Outcome != dedup.Acquired {
		t.Errorf("%+v, %v", res, err)
	}
	return n
}

func TestObserveRunsEverythingAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d, other := newDeduper(t, store, observing(told)), newDeduper(t, store, nil)
		one, two := dedup.WithFingerprint([]byte("1")), dedup.WithFingerprint([]byte("2"))
		acquire(t, other, "elsewhere")
		if n := runs(t, d, "k", one) + runs(t, d, "k", one) + runs(t, d, "k", two) + runs(t, d, "elsewhere"); n != 4 {
			t.Errorf("%d of 4 ran", n)
		}
		wantState(t, store, "k", dedup.StateSucceeded) // recorded for real
		skip := told.of("would skip")
		if len(skip) != 3 || skip[0].Outcome != dedup.Duplicate || skip[1].Outcome != dedup.Mismatch || skip[2].Outcome != dedup.InFlight {
			t.Fatalf("%+v", skip)
		}
		if skip[0].Cause != dedup.ProducerRetry || skip[1].Cause != dedup.KeyReuse {
			t.Errorf("%+v", skip)
		}
		told.want(t, "claimed", 4)
		told.want(t, "ended", 1)
		if rec := lookup(t, store, "elsewhere"); rec.State != dedup.StateInProgress || rec.Attempt != 1 {
			t.Errorf("the other owner's claim was touched: %+v", rec)
		}
	})
}

func TestObservedClaimsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		mark(t, d, "done")
		if seen(t, d, "done") {
			t.Error("Seen in Observe mode")
		}
		claims := claimBatch(t, d, keyed("done"), keyed("a"), keyed("a"))
		for i, observed := range []dedup.Outcome{dedup.Duplicate, dedup.Acquired, dedup.InFlight} {
			c := claims[i]
			wantOutcome(t, c, dedup.Acquired)
			if c.Observed != observed || c.Attempt < 1 || c.Err() != nil {
				t.Errorf("item %d: observed %v, attempt %d, %v", i, c.Observed, c.Attempt, c.Err())
			}
			run, stop := c.KeepAlive(t.Context())
			defer stop()
			if run.Err() != nil {
				t.Errorf("item %d cannot run: %v", i, context.Cause(run))
			}
		}
		if claims[0].Fence() != 0 || claims[2].Fence() != 0 {
			t.Error("a fence without a claim")
		}
		errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claims[0]}, {Claim: claims[1]}, {Claim: claims[2]}})
		if errs != nil {
			t.Errorf("%v", errs)
		}
		told.want(t, "would skip", 3) // Seen, the duplicate, the alias
		wantState(t, store, "a", dedup.StateSucceeded)
	})
}

// Switching Observe on must not change what a program does: not when the store is
// away, not when a lease is lost, not when a record cannot be written.
func TestObserveFailsNobody(t *testing.T) {
	t.Run("no store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d := newDeduper(t, store, observing(told))
			store.setBefore(down)
			if runs(t, d, "k") != 1 {
				t.Error("not run")
			}
			if skip := told.of("would skip"); len(skip) != 1 || skip[0].Outcome != dedup.Unknown || !errors.Is(skip[0].Err, errNet) {
				t.Errorf("%+v", skip)
			}
		})
	})
	t.Run("lost lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d := newDeduper(t, store, observing(told))
			store.setBefore(only("Renew", down))
			res, err := do(t, d, "k", func(ctx context.Context) (string, error) {
				time.Sleep(3 * lease)
				return "v", context.Cause(ctx)
			})
			if err != nil || res.Value != "v" {
				t.Errorf("%+v, %v", res, err)
			}
			told.want(t, "lease lost", 1)
			wantState(t, store, "k", dedup.StateSucceeded)
		})
	})
	t.Run("another owner at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d, other := newDeduper(t, store, observing(told)), newDeduper(t, store, nil)
			_, err := do(t, d, "k", func(context.Context) (string, error) { mark(t, other, "k"); return "v", nil })
			if err != nil {
				t.Error(err)
			}
			told.want(t, "lease lost", 1)
		})
	})
	t.Run("no record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d := newDeduper(t, store, observing(told))
			store.setBefore(only("Finish", down))
			start := time.Now()
			if runs(t, d, "k") != 1 || time.Since(start) > time.Second {
				t.Errorf("held up for %v", time.Since(start))
			}
			told.want(t, "store error", 4)
			told.want(t, "ended", 0)
		})
	})
}

// The caller's own mistakes are told in Observe mode too, or nobody finds them before
// Enforce is switched on.
func TestObserveTellsMisuse(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), observing(&journal{}))
	c := acquire(t, d, "k")
	if err := c.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	wantInput(t, c.Release(t.Context()), "Claim")
	_, err := d.Claim(t.Context(), "")
	wantInput(t, err, "Key")
}

func TestFailOpenRunsWithoutTheStoreAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		store.setBefore(down)
		if runs(t, d, "k")+runs(t, d, "k") != 2 {
			t.Error("not run")
		}
		open := told.of("failed open")
		if len(open) != 2 || open[0].Outcome != dedup.Unknown || !errors.Is(open[0].Err, errNet) {
			t.Fatalf("%+v", open)
		}
		told.want(t, "ended", 0)
		store.setBefore(nil)
		c := acquire(t, d, "other")
		if c.Observed != dedup.Acquired || c.Fence() == 0 {
			t.Errorf("a real claim is not: %+v", c)
		}
		told.want(t, "failed open", 2)
	})
}

// Only a store that cannot be asked fails open. An answer of the store counts.
func TestFailOpenRespectsWhatTheStoreSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d, other := newDeduper(t, store, failingOpen(told)), newDeduper(t, store, nil)
		acquire(t, other, "elsewhere")
		_, err := do(t, d, "elsewhere", mustNotRun(t))
		wantErr(t, err, dedup.ErrInFlight)
		mark(t, d, "done")
		_, err = do(t, d, "done", mustNotRun(t))
		wantErr(t, err, dedup.ErrNoResult)
		store.setBefore(only("Claim", func(call) error { return dedup.ErrUnreadable }))
		_, err = do(t, d, "foreign", mustNotRun(t))
		wantErr(t, err, dedup.ErrUnreadable)
		told.want(t, "failed open", 0)
	})
}

// Failing open runs without a claim, not twice at a time in one batch or one process.
func TestFailOpenStillRunsARepetitionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		store.setBefore(down)
		claims := claimBatch(t, d, keyed("a"), keyed("a"), keyed("b"))
		wantOutcome(t, claims[0], dedup.Acquired)
		wantOutcome(t, claims[1], dedup.InFlight)
		wantOutcome(t, claims[2], dedup.Acquired)
		if claims[0].Observed != dedup.Unknown || claims[0].Fence() != 0 || claims[0].Attempt != 1 {
			t.Errorf("%+v", claims[0])
		}
		told.want(t, "failed open", 2)
		outcomes := crowd(t, d, 100, returns("v"))
		if outcomes[dedup.Acquired] != 1 || outcomes[dedup.InFlight] != 99 {
			t.Errorf("%v", outcomes)
		}
		if errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claims[0]}, {Claim: claims[2]}}); errs != nil {
			t.Errorf("%v", errs)
		}
	})
}

// A lost record is not a reason to acknowledge, FailOpen or not.
func TestFailOpenDoesNotHideALostRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, failingOpen(&journal{}))
		store.setBefore(only("Finish", down))
		if _, err := do(t, d, "k", returns("v")); !dedup.OutcomeUnknown(err) {
			t.Errorf("%v", err)
		}
	})
}

// A store that cannot be asked fails neither Seen nor Mark, and the observer is told.
func TestObservedSeenAndMarkFailNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		store.setBefore(down)
		if seen, err := d.Seen(t.Context(), "k"); seen || err != nil {
			t.Errorf("Seen: %t, %v", seen, err)
		}
		if first, err := d.Mark(t.Context(), "k"); !first || err != nil {
			t.Errorf("Mark: %t, %v", first, err)
		}
		if got := told.of("claimed"); len(got) != 1 || got[0].Outcome != dedup.Unknown || got[0].Err == nil {
			t.Errorf("told of %+v", got)
		}
	})
}
