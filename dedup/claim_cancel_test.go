package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// wantFree insists that nobody holds the key once everything has settled.
func wantFree(t *testing.T, store *hooked, key string) {
	t.Helper()
	time.Sleep(3 * time.Second) // a StoreTimeout, and far less than a lease
	synctest.Wait()
	rec := lookup(t, store, key)
	require.NotEqual(t, driver.StateInProgress, rec.State, "a claim nobody knows of was left behind")
}

// Wherever a caller is canceled while it claims, the key is free soon after.
func TestCancelledClaimLeavesNoClaimBehind(t *testing.T) {
	slow := only("Claim", func(call) error { time.Sleep(time.Second); return nil })
	lost := only("Claim", func(c call) error { time.Sleep(time.Second); return errNet })
	for name, row := range map[string]struct {
		before, after func(call) error
		cancel        time.Duration
	}{
		"before the request arrives": {slow, nil, 500 * time.Millisecond},
		"before the reply arrives":   {nil, slow, 500 * time.Millisecond},
		"and the reply is lost":      {nil, lost, 500 * time.Millisecond},
		"between two asks":           {nil, lost, time.Second + time.Microsecond},
		"during the second ask":      {nil, lost, 1500 * time.Millisecond},
		"while the store hangs":      {nil, only("Claim", hang), 500 * time.Millisecond},
		"while a hidden claim is renewed": {only("Renew", func(call) error {
			time.Sleep(time.Second)
			return nil
		}), lostTimes("Claim", 1), 500 * time.Millisecond},
		"and every reply of the ask is lost": {nil, lost, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				store.prompt = true
				d := newDeduper(t, store, nil)
				store.setBefore(row.before)
				store.setAfter(row.after)
				ctx, cancel := context.WithTimeout(t.Context(), row.cancel)
				defer cancel()
				c, err := d.Claim(ctx, "k")
				counted := 0
				if c != nil || !dedup.OutcomeUnknown(err) {
					// A call that is canceled while it renews its hidden claim may still win.
					require.NotNil(t, c, "%v, %v", c, err)
					require.NoError(t, c.Release(t.Context()), "%v, %v", c, err)
					counted = 1
				}
				require.NotZero(t, store.count("Claim"), "nothing was asked")
				wantFree(t, store, "k")
				assert.Equal(t, counted, lookup(t, store, "k").Attempt, "attempts counted")
			})
		})
	}
}

// lostTimes loses the first n replies, or requests, of a method.
func lostTimes(method string, n int) func(call) error {
	return only(method, func(c call) error {
		if c.nth <= n {
			return errNet
		}
		return nil
	})
}

func TestCancelledBatchLeavesNoClaimBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", hang))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		claims, err := d.ClaimBatch(ctx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "a"}})
		require.NoError(t, err)
		for _, c := range claims {
			require.Equal(t, dedup.Unknown, c.Outcome)
		}
		wantFree(t, store, "a")
		wantFree(t, store, "b")
		require.Equal(t, 1, store.count("Finish"), "round trips to release one batch")
	})
}

// A claim that was never sent needs no release.
func TestCallThatIsCancelledBeforehandAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
		errBye := errors.New("bye")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBye)
		errs := map[string]error{}
		_, errs["Claim"] = d.Claim(ctx, "k")
		_, errs["Do"] = dedup.Do(ctx, d, "k", mustNotRun(t))
		_, errs["Seen"] = d.Seen(ctx, "k")
		_, errs["Mark"] = d.Mark(ctx, "k")
		_, errs["Lookup"] = d.Lookup(ctx, "k")
		claims, err := d.ClaimBatch(ctx, []dedup.Request{{Key: "k"}})
		require.NoError(t, err)
		errs["ClaimBatch"] = claims[0].Err()
		for name, err := range errs {
			assert.ErrorIs(t, err, errBye, name)
			assert.ErrorIs(t, err, context.Canceled, name)
			assert.True(t, dedup.OutcomeUnknown(err) && !dedup.CanRetry(err), "%s: %v", name, err)
		}
		synctest.Wait()
		assert.Equal(t, 0, store.count(), "calls to the store")
		seen.want(t, "store error", 0) // it is not the store's fault
	})
}

// A thousand callers give up on a hanging store. Their claims are given back, in batches and not
// one by one.
func TestManyCancelledClaimsAreReleasedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		store.prompt = true
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				_, err := d.Claim(ctx, fmt.Sprint("k", i))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		for i := range 1000 {
			wantFreeNow(t, store, fmt.Sprint("k", i))
		}
		assert.LessOrEqual(t, store.count("Finish"), 20, "round trips to release")
	})
}

func wantFreeNow(t *testing.T, store *hooked, key string) {
	t.Helper()
	synctest.Wait()
	require.NotEqual(t, driver.StateInProgress, lookup(t, store, key).State, "%q is still held",
		key)
}

// FailOpen lets effects run when the store fails, not when the caller has gone or is out of time.
func TestFailOpenDoesNotRunForACallerThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.Mode = dedup.FailOpen })
		store.setBefore(only("Claim", hang))
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { time.Sleep(time.Second); cancel(errors.New("bye")) }()
		_, err := dedup.Do(ctx, d, "k", mustNotRun(t))
		require.True(t, dedup.OutcomeUnknown(err), err)
		timed, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = dedup.Do(timed, d, "k", mustNotRun(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
