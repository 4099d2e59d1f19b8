package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/dedup"
)

// giveBack ends a claim whose turn never came.
func giveBack(t *testing.T, d *dedup.Deduper, c *dedup.Claim, err error) {
	t.Helper()
	if errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c, Unused: true, Err: err}}); errs != nil {
		t.Fatalf("%v", errs)
	}
}

// A consumer claims ahead of its turn, and loses the partition again and again: that uses
// up nobody's attempts, whatever the error it gives the claims back with.
func TestClaimsGivenBackUnusedAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for _, err := range []error{nil, errNet, dedup.Permanent(errNet), dedup.NotBegun(errNet)} {
			c := claimBatch(t, d, keyed("k"))[0]
			if c.Attempt != 1 {
				t.Fatalf("attempt %d", c.Attempt)
			}
			giveBack(t, d, c, err)
			giveBack(t, d, c, err) // ended the same way: nothing is asked
			if rec := wantState(t, store, "k", dedup.StateReleased); rec.Attempt != 0 {
				t.Errorf("given back with %v: attempt %d on record", err, rec.Attempt)
			}
		}
		if n := store.count("Finish"); n != 4 {
			t.Errorf("%d calls of Finish", n)
		}
		if err := claimBatch(t, d, keyed("k"))[0].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := claimBatch(t, d, keyed("k"))[0]
		if c.Attempt != 2 {
			t.Errorf("after one that was used: attempt %d", c.Attempt)
		}
	})
}

// The first reply is lost. The request that is sent again must not take another attempt away.
func TestUnusedSentAgainTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		if err := acquire(t, d, "k").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(c call) error {
			if c.nth <= 3 {
				return errNet
			}
			return nil
		}))
		giveBack(t, d, c, nil)
		if n := store.count("Finish"); n < 3 {
			t.Fatalf("%d calls of Finish: nothing was sent again", n)
		}
		if next := acquire(t, d, "k"); next.Attempt != 2 {
			t.Errorf("attempt %d", next.Attempt)
		}
	})
}

func TestUnusedRefusesWhatOnlyABegunAttemptHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for name, done := range map[string]dedup.Completion{
			"result":       {Result: []byte("v")},
			"empty result": {Result: []byte{}},
			"with":         {With: "something"},
		} {
			done.Claim, done.Unused = acquire(t, d, name), true
			errs := d.CompleteBatch(t.Context(), []dedup.Completion{done})
			if errs == nil {
				t.Fatalf("%s: no error", name)
			}
			wantInput(t, errs[0], "Completion.Unused")
			wantState(t, store, name, dedup.StateInProgress)
			giveBack(t, d, done.Claim, nil) // it is still to be ended
		}
	})
}

// A handler that has declared Danger has begun.
func TestUnusedAfterDangerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		defer stop()
		if err := dedup.Danger(ctx); err != nil {
			t.Fatal(err)
		}
		errs := d.CompleteBatch(ctx, []dedup.Completion{{Claim: c, Unused: true}})
		if errs == nil {
			t.Fatal("no error")
		}
		wantInput(t, errs[0], "Completion.Unused")
		wantState(t, store, "k", dedup.StateInProgress)
	})
}

// Somebody still has to find out about the effect that an earlier attempt has declared.
func TestUnusedKeepsTheDangerOfAnEarlierAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
				return dedup.StateReleased, nil, nil
			}
		})
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			return "", errors.Join(dedup.Danger(ctx), errNet)
		})
		wantErr(t, err, errNet)
		for range 2 {
			c := acquire(t, d, "k")
			if c.Attempt != 2 {
				t.Errorf("attempt %d", c.Attempt)
			}
			giveBack(t, d, c, dedup.NotBegun(errNet))
			if rec := wantState(t, store, "k", dedup.StateUncertain); rec.Attempt != 1 || !rec.Danger {
				t.Errorf("%+v", rec)
			}
		}
	})
}

// In Observe mode a claim that was not won writes nothing, and one that was is given back.
func TestUnusedInObserveMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.ObserveOnly = true })
		won := acquire(t, d, "k")
		shadow := acquire(t, d, "k")
		giveBack(t, d, shadow, nil)
		if rec := wantState(t, store, "k", dedup.StateInProgress); rec.Attempt != 1 || store.count("Finish") != 0 {
			t.Errorf("%+v after %d ends", rec, store.count("Finish"))
		}
		giveBack(t, d, won, nil)
		wantState(t, store, "k", dedup.StateReleased)
	})
}
