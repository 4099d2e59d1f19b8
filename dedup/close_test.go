package dedup_test

import (
	"context"
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

func closeWithin(d *dedup.Deduper, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return d.Close(ctx)
}

func TestCloseWaitsForHandlersAndKeptClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		go func() {
			_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
				time.Sleep(30 * time.Second)
				return "v", context.Cause(ctx)
			})
			assert.NoError(t, err)
		}()
		c := acquire(t, d, "kept")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		go func() {
			time.Sleep(40 * time.Second)
			assert.NoError(t, run.Err(), "cancelled although Close still waits")
			assert.NoError(t, c.Complete(context.Background(), nil))
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, closeWithin(d, time.Minute))
		assert.Equal(t, 40*time.Second, time.Since(start))
		wantState(t, store, "k", driver.StateSucceeded)
		wantState(t, store, "kept", driver.StateSucceeded)
	})
}

// Ending a claim ends its KeepAlive, also when there was no claim to renew.
func TestEndOfAShadowClaimFreesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.Mode = dedup.FailOpen })
		store.setBefore(only("Claim", down))
		c := acquire(t, d, "k")
		run, _ := c.KeepAlive(t.Context())
		require.NoError(t, c.Complete(t.Context(), nil))
		require.ErrorIs(t, context.Cause(run), context.Canceled)
		assert.NoError(t, closeWithin(d, time.Second))
	})
}

func TestClosedRefusesEveryCallButTheEndOfAClaim(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, nil)
	held := claimBatch(t, d, keyed("a"), keyed("b"), keyed("c"), keyed("d"))
	require.NoError(t, d.Close(t.Context()))
	store.forgetCalls()
	errOf := func(_ any, err error) error { return err }
	ctx := t.Context()
	for name, err := range map[string]error{
		"Do":         errOf(dedup.Do(ctx, d, "k", mustNotRun(t))),
		"Claim":      errOf(d.Claim(ctx, "k")),
		"ClaimBatch": errOf(d.ClaimBatch(ctx, []dedup.Request{keyed("k")})),
		"Seen":       errOf(d.Seen(ctx, "k")),
		"Mark":       errOf(d.Mark(ctx, "k")),
		"Lookup":     errOf(d.Lookup(ctx, "k")),
		"Forget":     d.Forget(ctx, "k"),
	} {
		assert.ErrorIs(t, err, dedup.ErrClosed, name)
		assert.False(t, dedup.CanRetry(err), name)
	}
	assert.Equal(t, 0, store.count(), "calls to the store")
	errs := d.CompleteBatch(ctx, []dedup.Completion{{Claim: held[0]}})
	assert.Nil(t, errs, "what is held cannot be ended")
	require.NoError(t, held[1].Complete(ctx, nil))
	require.NoError(t, held[2].Fail(ctx, errNet))
	assert.NoError(t, held[3].Release(ctx))
	assert.NoError(t, d.Close(ctx), "the second Close")
}

func TestCloseMayBeCalledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		_, stop := acquire(t, d, "k").KeepAlive(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				assert.NoError(t, closeWithin(d, time.Minute))
			})
		}
		synctest.Wait()
		stop()
		wg.Wait()
	})
}

// When Close gives up, it cancels the calls that still run, under a claim or without one. Its error
// says how many they are, and no handler can start afterwards.
func TestCloseThatGivesUpCancelsWhatStillRuns(t *testing.T) {
	for name, change := range map[string]func(*dedup.Config){
		"enforce":   nil,
		"observe":   func(c *dedup.Config) { c.Mode = dedup.Observe },
		"fail open": func(c *dedup.Config) { c.Mode = dedup.FailOpen },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, change)
				switch name {
				case "observe":
					mark(t, newDeduper(t, store, nil), "k0")
				case "fail open":
					store.setBefore(only("Claim", down))
				}
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() {
						_, err := do(t, d, fmt.Sprint("k", i),
							func(ctx context.Context) (string, error) {
								<-ctx.Done()
								return "", context.Cause(ctx)
							})
						assert.ErrorIs(t, err, dedup.ErrClosed, "handler %d", i)
					})
				}
				time.Sleep(10 * time.Second)
				start := time.Now()
				err := closeWithin(d, 2*time.Second)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "with 3 calls")
				assert.Equal(t, 2*time.Second, time.Since(start))
				wg.Wait()
				assert.NoError(t, closeWithin(d, time.Second), "when all is quiet")
			})
		})
	}
}

// A call that is still claiming when Close gives up must not run its handler afterwards:
// the program is about to exit.
func TestNoHandlerStartsAfterCloseGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", func(call) error { time.Sleep(2 * time.Second); return nil }))
		done := make(chan error, 1)
		go func() {
			_, err := do(t, d, "k", mustNotRun(t))
			done <- err
		}()
		synctest.Wait()
		assert.ErrorIs(t, closeWithin(d, time.Second), context.DeadlineExceeded)
		require.ErrorIs(t, <-done, dedup.ErrClosed)
		wantState(t, store, "k", driver.StateReleased)
	})
}

// The goroutines that give back orphans end before Close does, and Close does not wait
// for them longer than it was told.
func TestCloseWaitsForWhatGoesOnBehindTheCallersBacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		store.prompt = true
		d := newDeduper(t, store, nil)
		store.setAfter(func(call) error { time.Sleep(time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := d.Claim(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		err = closeWithin(d, 500*time.Millisecond)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 500*time.Millisecond, time.Since(start))
		assert.NoError(t, closeWithin(d, time.Minute))
		wantState(t, store, "k", driver.StateReleased)
	})
}
