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

func observing(told *journal) func(*dedup.Config) {
	return func(c *dedup.Config) { c.Mode, c.Observer = dedup.Observe, told.observer() }
}

func failingOpen(told *journal) func(*dedup.Config) {
	return func(c *dedup.Config) { c.Mode, c.Observer = dedup.FailOpen, told.observer() }
}

// runs counts how often Do runs its effect, and insists that it succeeds.
func runs(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) int {
	t.Helper()
	n := 0
	res, err := dedup.DoResult(t.Context(), d, key, func(context.Context) (string, error) {
		n++
		return "v", nil
	}, opts...)
	require.NoError(t, err)
	assert.Equal(t, "v", res.Value)
	assert.Equal(t, dedup.Acquired, res.Outcome)
	return n
}

func TestObserveRunsEverythingAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d, other := newDeduper(t, store, observing(told)), newDeduper(t, store, nil)
		one, two := dedup.WithFingerprint([]byte("1")), dedup.WithFingerprint([]byte("2"))
		acquire(t, other, "elsewhere")
		n := runs(t, d, "k", one) + runs(t, d, "k", one) + runs(t, d, "k", two) +
			runs(t, d, "elsewhere")
		assert.Equal(t, 4, n)
		wantState(t, store, "k", driver.StateSucceeded) // recorded for real
		skip := told.of("would skip")
		require.Len(t, skip, 3)
		require.Equal(t, dedup.Duplicate, skip[0].Outcome)
		require.Equal(t, dedup.Mismatch, skip[1].Outcome)
		require.Equal(t, dedup.InFlight, skip[2].Outcome)
		assert.Equal(t, driver.ProducerRetry, skip[0].Cause)
		assert.Equal(t, driver.KeyReuse, skip[1].Cause)
		told.want(t, "claimed", 4)
		told.want(t, "ended", 1)
		rec := lookup(t, store, "elsewhere")
		assert.Equal(t, driver.StateInProgress, rec.State, "the other owner's claim was touched")
		assert.Equal(t, 1, rec.Attempt)
	})
}

func TestObservedClaimsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		mark(t, d, "done")
		assert.False(t, seen(t, d, "done"), "Seen in Observe mode")
		claims := claimBatch(t, d, keyed("done"), keyed("a"), keyed("a"))
		for i, observed := range []driver.Outcome{dedup.Duplicate, dedup.Acquired, dedup.InFlight} {
			c := claims[i]
			require.Equal(t, dedup.Acquired, c.Outcome)
			assert.Equal(t, observed, c.Observed, "item %d", i)
			assert.GreaterOrEqual(t, c.Attempt, 1, "item %d", i)
			assert.NoError(t, c.Err(), "item %d", i)
			run, stop := c.KeepAlive(t.Context())
			defer stop()
			assert.NoError(t, run.Err(), "item %d cannot run", i)
		}
		assert.Zero(t, claims[0].Fence(), "a fence without a claim")
		assert.Zero(t, claims[2].Fence())
		errs := d.CompleteBatch(t.Context(),
			[]dedup.Completion{{Claim: claims[0]}, {Claim: claims[1]}, {Claim: claims[2]}})
		assert.Nil(t, errs)
		told.want(t, "would skip", 3) // Seen, the duplicate, the alias
		wantState(t, store, "a", driver.StateSucceeded)
	})
}

// Observe mode must not change what a program returns: not when the store is away, not when a lease
// is lost, and not when a record cannot be written.
func TestObserveFailsNobody(t *testing.T) {
	t.Run("no store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d := newDeduper(t, store, observing(told))
			store.setBefore(down)
			assert.Equal(t, 1, runs(t, d, "k"), "not run")
			skip := told.of("would skip")
			require.Len(t, skip, 1)
			assert.Equal(t, dedup.Unknown, skip[0].Outcome)
			assert.ErrorIs(t, skip[0].Err, errNet)
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
			require.NoError(t, err)
			assert.Equal(t, "v", res.Value)
			told.want(t, "lease lost", 1)
			wantState(t, store, "k", driver.StateSucceeded)
		})
	})
	t.Run("another owner at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d, other := newDeduper(t, store, observing(told)), newDeduper(t, store, nil)
			_, err := do(t, d, "k", func(context.Context) (string, error) {
				mark(t, other, "k")
				return "v", nil
			})
			assert.NoError(t, err)
			told.want(t, "lease lost", 1)
		})
	})
	t.Run("no record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, told := hook(), &journal{}
			d := newDeduper(t, store, observing(told))
			store.setBefore(only("Finish", down))
			start := time.Now()
			assert.Equal(t, 1, runs(t, d, "k"), "held up")
			assert.LessOrEqual(t, time.Since(start), time.Second)
			told.want(t, "store error", 4)
			told.want(t, "ended", 0)
		})
	})
}

// The caller's own mistakes are errors in Observe mode, too. Otherwise they are found only when
// Enforce is switched on.
func TestObserveTellsMisuse(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), observing(&journal{}))
	c := acquire(t, d, "k")
	require.NoError(t, c.Complete(t.Context(), nil))
	wantInput(t, c.Release(t.Context()), "Claim")
	_, err := d.Claim(t.Context(), "")
	wantInput(t, err, "Key")
}

func TestFailOpenRunsWithoutTheStoreAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		store.setBefore(down)
		assert.Equal(t, 2, runs(t, d, "k")+runs(t, d, "k"), "not run")
		open := told.of("failed open")
		require.Len(t, open, 2)
		require.Equal(t, dedup.Unknown, open[0].Outcome)
		require.ErrorIs(t, open[0].Err, errNet)
		told.want(t, "ended", 0)
		store.setBefore(nil)
		c := acquire(t, d, "other")
		assert.Equal(t, dedup.Acquired, c.Observed, "a real claim")
		assert.NotZero(t, c.Fence())
		told.want(t, "failed open", 2)
	})
}

// FailOpen applies only when the store does not answer. An answer of the store counts.
func TestFailOpenRespectsWhatTheStoreSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d, other := newDeduper(t, store, failingOpen(told)), newDeduper(t, store, nil)
		acquire(t, other, "elsewhere")
		_, err := do(t, d, "elsewhere", mustNotRun(t))
		require.ErrorIs(t, err, dedup.ErrInFlight)
		mark(t, d, "done")
		_, err = do(t, d, "done", mustNotRun(t))
		require.ErrorIs(t, err, dedup.ErrNoResult)
		store.setBefore(only("Claim", func(call) error { return driver.ErrUnreadable }))
		_, err = do(t, d, "foreign", mustNotRun(t))
		require.ErrorIs(t, err, driver.ErrUnreadable)
		told.want(t, "failed open", 0)
	})
}

// FailOpen runs without a claim, but never twice at a time in one batch or one process.
func TestFailOpenStillRunsARepetitionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		store.setBefore(down)
		claims := claimBatch(t, d, keyed("a"), keyed("a"), keyed("b"))
		require.Equal(t, dedup.Acquired, claims[0].Outcome)
		require.Equal(t, dedup.InFlight, claims[1].Outcome)
		require.Equal(t, dedup.Acquired, claims[2].Outcome)
		assert.Equal(t, dedup.Unknown, claims[0].Observed)
		assert.Zero(t, claims[0].Fence())
		assert.Equal(t, 1, claims[0].Attempt)
		told.want(t, "failed open", 2)
		outcomes := crowd(t, d, 100, returns("v"))
		assert.Equal(t, 1, outcomes[dedup.Acquired])
		assert.Equal(t, 99, outcomes[dedup.InFlight])
		errs := d.CompleteBatch(t.Context(),
			[]dedup.Completion{{Claim: claims[0]}, {Claim: claims[2]}})
		assert.Nil(t, errs)
	})
}

// A lost record is not a reason to acknowledge, with FailOpen or without.
func TestFailOpenDoesNotHideALostRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, failingOpen(&journal{}))
		store.setBefore(only("Finish", down))
		_, err := do(t, d, "k", returns("v"))
		assert.True(t, dedup.OutcomeUnknown(err), err)
	})
}

// When the store does not answer, Seen and Mark return no error, and the observer gets one.
func TestObservedSeenAndMarkFailNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		store.setBefore(down)
		seen, err := d.Seen(t.Context(), "k")
		assert.False(t, seen)
		assert.NoError(t, err)
		first, err := d.Mark(t.Context(), "k")
		assert.True(t, first)
		assert.NoError(t, err)
		got := told.of("claimed")
		require.Len(t, got, 1)
		assert.Equal(t, dedup.Unknown, got[0].Outcome)
		assert.Error(t, got[0].Err)
	})
}
