package dedup_test

import (
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

func seen(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) bool {
	t.Helper()
	ok, err := d.Seen(t.Context(), key, opts...)
	require.NoError(t, err)
	return ok
}

func mark(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) bool {
	t.Helper()
	first, err := d.Mark(t.Context(), key, opts...)
	require.NoError(t, err)
	return first
}

func TestMarkedIsSeenUntilTheWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &journal{}
		d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.Observer = told.observer() })
		require.True(t, !seen(t, d, "k") && mark(t, d, "k") && seen(t, d, "k") && !mark(t, d, "k"),
			"not seen, first, seen, not first")
		assert.False(t, seen(t, d, "k", dedup.WithScope("other")), "seen in another scope")
		time.Sleep(time.Hour)
		assert.True(t, !seen(t, d, "k") && mark(t, d, "k"), "remembered beyond the window")
		told.want(t, "ended", 2)      // marks that were the first
		told.want(t, "lease lost", 0) // a Mark has no lease to lose
		told.want(t, "claimed", 4)
	})
}

func TestMarkIsFirstOnceAmongMany(t *testing.T) {
	store := dedup.Memory(10)
	var firsts atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		d := newDeduper(t, store, nil)
		for range 50 {
			wg.Go(func() {
				first, err := d.Mark(t.Context(), "k")
				if assert.NoError(t, err); first {
					firsts.Add(1)
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, 1, firsts.Load(), "callers that were first")
}

// The reply to the first Mark is lost. Its retry finds its own record and returns first, too.
func TestMarkIsFirstAfterALostReply(t *testing.T) {
	for lost := range 4 {
		t.Run(fmt.Sprint(lost, " replies lost"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				store.setAfter(lostTimes("Finish", lost))
				assert.True(t, mark(t, d, "k"), "not the first, after %d calls", store.count())
				assert.Equal(t, lost+1, store.count())
				assert.False(t, mark(t, d, "k"), "first twice")
			})
		})
	}
}

func TestMarkTellsThatTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = told.observer() })
		store.setBefore(down)
		first, err := d.Mark(t.Context(), "k")
		assert.ErrorIs(t, err, errNet)
		assert.True(t, !first && dedup.OutcomeUnknown(err), "%t, %v", first, err)
		_, err = d.Seen(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "Seen: %v", err)
		_, err = d.Lookup(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "Lookup: %v", err)
		err = d.Forget(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "Forget: %v", err)
		told.want(t, "store error", 4+3)
	})
}

// Seen and Mark are called while another owner holds the claim.
func TestMarkOverAClaimInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		c := acquire(t, a, "k")
		assert.False(t, seen(t, b, "k"), "what is only in flight is not seen")
		assert.True(t, mark(t, b, "k") && seen(t, b, "k"), "the mark was not kept")
		require.ErrorIs(t, c.Complete(t.Context(), []byte("late")), dedup.ErrLeaseLost)
		assert.Nil(t, wantState(t, store, "k", driver.StateSucceeded).Result)
		assert.NotNil(t, c.Stored)
	})
}

func TestMarkChangesNothingThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "done", returns("v"))
		require.NoError(t, err)
		require.NoError(t, acquire(t, d, "failed").Fail(t.Context(), errNet))
		assert.True(t, !mark(t, d, "done") && !mark(t, d, "failed"), "first, over a record")
		assert.True(t, seen(t, d, "done") && seen(t, d, "failed"), "not seen")
		assert.Equal(t, "v", string(wantState(t, store, "done", driver.StateSucceeded).Result))
		wantState(t, store, "failed", driver.StateFailed)
	})
}

func TestSeenComparesFingerprints(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	mark(t, d, "k", dedup.WithFingerprint([]byte("a")))
	assert.True(t, seen(t, d, "k", dedup.WithFingerprint([]byte("a"))) && seen(t, d, "k"),
		"not seen")
	_, err := d.Seen(t.Context(), "k", dedup.WithFingerprint([]byte("b")))
	require.ErrorIs(t, err, dedup.ErrMismatch)
}

// An uncertain key may be done already, so Seen returns an error and not false.
func TestSeenDoesNotSendAnUncertainKeyToItsEffect(t *testing.T) {
	d := newDeduper(t, uncertain{dedup.Memory(1)}, nil)
	_, err := d.Seen(t.Context(), "k")
	require.ErrorIs(t, err, dedup.ErrUncertain)
}

func TestLookupReadsAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.Labels = true })
		rec, err := d.Lookup(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, driver.StateAbsent, rec.State)
		origin := driver.Origin{Source: "orders", Partition: 3, Offset: 7, Generation: 2}
		c := acquire(t, d, "k", func(r *dedup.Request) { r.Origin = origin }, func(r *dedup.Request) { r.Label = "order 7" })
		time.Sleep(time.Second)
		rec, err = d.Lookup(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, driver.StateInProgress, rec.State)
		require.Equal(t, lease-time.Second, rec.Remaining)
		require.Equal(t, 1, rec.Attempt)
		require.Equal(t, origin.Digest(), rec.Origin.Digest())
		require.EqualValues(t, 7, rec.Origin.Offset)
		require.Equal(t, "order 7", rec.Label)
		require.NoError(t, c.Complete(t.Context(), []byte("v")))
		time.Sleep(time.Minute)
		rec, err = d.Lookup(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, driver.StateSucceeded, rec.State)
		require.Equal(t, "v", string(rec.Result))
		require.Equal(t, time.Minute, rec.Age)
		require.Equal(t, 59*time.Minute, rec.Remaining)
	})
}

// Labels are stored as clear text, so they are kept only if Config.Labels allows it.
func TestLabelsAreNotKeptByDefault(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	mark(t, d, "k", func(r *dedup.Request) { r.Label = "jane@example.com" })
	assert.Empty(t, lookup(t, store, "k").Label)
}

func TestForgetMakesAKeyClaimableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		for name, end := range map[string]func(*dedup.Claim) error{
			"done":     func(c *dedup.Claim) error { return c.Complete(t.Context(), nil) },
			"failed":   func(c *dedup.Claim) error { return c.Fail(t.Context(), errNet) },
			"released": func(c *dedup.Claim) error { return c.Release(t.Context()) },
			"lapsed":   func(*dedup.Claim) error { time.Sleep(lease); return nil },
		} {
			c := acquire(t, d, name)
			require.NoError(t, end(c))
			assert.NoError(t, d.Forget(t.Context(), name), "forgetting a %s", name)
			again := acquire(t, d, name)
			assert.Equal(t, 1, again.Attempt, "after a %s key: attempt", name)
			assert.Greater(t, again.Fence(), c.Fence(), "after a %s key: attempt", name)
		}
		assert.NoError(t, d.Forget(t.Context(), "never seen"))
	})
}

func TestForgetRefusesALiveClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		c := acquire(t, a, "k")
		for _, d := range []*dedup.Deduper{a, b} {
			err := d.Forget(t.Context(), "k")
			require.ErrorIs(t, err, dedup.ErrInFlight)
			assert.False(t, dedup.OutcomeUnknown(err), "the outcome is known")
		}
		require.NoError(t, c.Complete(t.Context(), nil), "the live owner was disturbed")
	})
}

// An owner from before a Forget completes its claim late. It writes nothing, whether the key is
// absent or claimed again by then.
func TestForgottenOwnerWritesNothing(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		t.Run(fmt.Sprint("claimed again ", claimed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dedup.Memory(10)
				a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
				old := acquire(t, a, "k")
				time.Sleep(lease)
				require.NoError(t, b.Forget(t.Context(), "k"))
				want := driver.StateAbsent
				if claimed {
					acquire(t, b, "k")
					want = driver.StateInProgress
				}
				require.ErrorIs(t, old.Complete(t.Context(), []byte("old")), dedup.ErrLeaseLost)
				wantState(t, store, "k", want)
			})
		})
	}
}

// Thousands of callers that ask for one key share few look-ups. The caller of another key does not
// wait until they have been served one by one.
func TestSeenOfAHotKeyIsSharedInTheCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, trip = 4000, 2 * time.Millisecond
		store := hook()
		d := newDeduper(t, store, nil)
		markWithKey(t, d, "hot")
		store.setBefore(only("Lookup", func(call) error { time.Sleep(trip); return nil }))
		store.forgetCalls()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				seen, err := d.Seen(t.Context(), "hot")
				assert.True(t, seen)
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		start := time.Now()
		seen, err := d.Seen(t.Context(), "cold")
		assert.False(t, seen)
		assert.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), 10*trip, "another key's caller waited")
		wg.Wait()
		assert.LessOrEqual(t, store.count("Lookup"), callers/40)
	})
}
