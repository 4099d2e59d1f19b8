package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// giveBack ends a claim as not attempted.
func giveBack(t *testing.T, d *dedup.Deduper, c *dedup.Claim, err error) {
	t.Helper()
	errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c, NotAttempted: true,
		Err: err}})
	require.Nil(t, errs)
}

// A consumer claims ahead and loses the partition again and again. Claims that it gives back do not
// count as attempts, whatever the error it gives them back with.
func TestClaimsGivenBackNotAttemptedAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for _, err := range []error{nil, errNet, dedup.Permanent(errNet),
			dedup.NotStarted(errNet)} {
			c := claimBatch(t, d, keyed("k"))[0]
			require.Equal(t, 1, c.Attempt)
			giveBack(t, d, c, err)
			giveBack(t, d, c, err) // ended the same way: the store is not asked
			rec := wantState(t, store, "k", driver.StateReleased)
			assert.Equal(t, 0, rec.Attempt, "given back with %v", err)
		}
		assert.Equal(t, 4, store.count("Finish"), "Finish")
		require.NoError(t, claimBatch(t, d, keyed("k"))[0].Release(t.Context()))
		c := claimBatch(t, d, keyed("k"))[0]
		assert.Equal(t, 2, c.Attempt, "after one that was used")
	})
}

// The first reply is lost. When the request is sent again, it must not subtract another attempt.
func TestNotAttemptedSentAgainTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		require.NoError(t, acquire(t, d, "k").Release(t.Context()))
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(c call) error {
			if c.nth <= 3 {
				return errNet
			}
			return nil
		}))
		giveBack(t, d, c, nil)
		n := store.count("Finish")
		require.GreaterOrEqual(t, n, 3, "nothing was sent again")
		assert.Equal(t, 2, acquire(t, d, "k").Attempt)
	})
}

func TestNotAttemptedRefusesWhatOnlyABegunAttemptHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for name, done := range map[string]dedup.Completion{
			"result":       {Result: []byte("v")},
			"empty result": {Result: []byte{}},
			"with":         {With: "something"},
		} {
			done.Claim, done.NotAttempted = acquire(t, d, name), true
			errs := d.CompleteBatch(t.Context(), []dedup.Completion{done})
			require.NotNil(t, errs, "%s: no error", name)
			wantInput(t, errs[0], "Completion.NotAttempted")
			wantState(t, store, name, driver.StateInProgress)
			giveBack(t, d, done.Claim, nil) // it is still to be ended
		}
	})
}

// A handler that has called MarkIrreversible has started, so NotAttempted is refused.
func TestNotAttemptedAfterMarkIrreversibleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		defer stop()
		require.NoError(t, dedup.MarkIrreversible(ctx))
		errs := d.CompleteBatch(ctx, []dedup.Completion{{Claim: c, NotAttempted: true}})
		require.NotNil(t, errs)
		wantInput(t, errs[0], "Completion.NotAttempted")
		wantState(t, store, "k", driver.StateInProgress)
	})
}

// The effect that an earlier attempt has declared still has to be resolved.
func TestNotAttemptedKeepsTheMarkIrreversibleOfAnEarlierAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
				return dedup.DidNotHappen(), nil
			}
		})
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			return "", errors.Join(dedup.MarkIrreversible(ctx), errNet)
		})
		require.ErrorIs(t, err, errNet)
		for range 2 {
			c := acquire(t, d, "k")
			assert.Equal(t, 2, c.Attempt)
			giveBack(t, d, c, dedup.NotStarted(errNet))
			rec := wantState(t, store, "k", driver.StateUncertain)
			assert.Equal(t, 1, rec.Attempt)
			assert.True(t, rec.Irreversible, "%+v", rec)
		}
	})
}

// In Observe mode a claim that was not won writes nothing, and one that was is given back.
func TestNotAttemptedInObserveMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.Mode = dedup.Observe })
		won := acquire(t, d, "k")
		shadow := acquire(t, d, "k")
		giveBack(t, d, shadow, nil)
		assert.Equal(t, 1, wantState(t, store, "k", driver.StateInProgress).Attempt)
		assert.Equal(t, 0, store.count("Finish"))
		giveBack(t, d, won, nil)
		wantState(t, store, "k", driver.StateReleased)
	})
}
