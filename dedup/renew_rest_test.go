package dedup_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// A lone call starts no goroutine. On a busy machine a second goroutine would wait for a processor,
// and the caller would wait for it.
func TestLoneDoStartsNoGoroutine(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	before := runtime.NumGoroutine()
	for _, key := range []string{"a", "b", "c"} {
		_, err := dedup.Do(t.Context(), d, key, func(context.Context) (struct{}, error) {
			assert.LessOrEqual(t, runtime.NumGoroutine(), before, "while the handler runs")
			return struct{}{}, nil
		})
		require.NoError(t, err)
		assert.LessOrEqual(t, runtime.NumGoroutine(), before, "after the call")
	}
}

// A timer that fires after all claims have ended is not set again. The next claim sets it again.
func TestClaimAfterARestIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for _, key := range []string{"a", "b"} {
			res, err := do(t, d, key, func(ctx context.Context) (string, error) {
				time.Sleep(2 * lease)
				return "", context.Cause(ctx)
			})
			require.NoError(t, err, "%s, attempt %d", key, res.Attempt)
			require.GreaterOrEqual(t, store.count("Renew"), 5, "of %s in two leases", key)
			require.NoError(t, acquire(t, d, key+" short").Release(t.Context()))
			store.forgetCalls()
			time.Sleep(10 * lease)
			require.Zero(t, store.count(), "calls of the store while nothing is kept")
		}
	})
}

// A claim that is kept late is due before those that were kept earlier.
func TestOldClaimThatIsKeptLateIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		old := acquire(t, d, "old")
		time.Sleep(lease * 85 / 100)
		young, stopYoung := acquire(t, d, "young").KeepAlive(t.Context())
		defer stopYoung()
		run, stop := old.KeepAlive(t.Context())
		defer stop()
		time.Sleep(2 * lease)
		assert.NoError(t, context.Cause(run))
		assert.NoError(t, context.Cause(young))
	})
}

// MarkIrreversible renews the claim at once. The other claims, and later this one, are still
// renewed in time.
func TestRenewalsGoOnAfterADeclaration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		var runs []context.Context
		for _, key := range []string{"a", "b", "c"} {
			run, stop := acquire(t, d, key).KeepAlive(t.Context())
			defer stop()
			runs = append(runs, run)
			time.Sleep(lease / 10)
		}
		for range 20 {
			_, err := dedup.Step(runs[1], time.Now().String(),
				func(context.Context) (string, error) {
					return "", dedup.MarkIrreversible(runs[0])
				})
			require.NoError(t, err)
			time.Sleep(lease / 4)
			for i, run := range runs {
				require.NoError(t, context.Cause(run), "claim %d", i)
			}
		}
	})
}

// The timer's goroutine, and the renewals that it sends, end before Close does.
func TestCloseWaitsForTheTimer(t *testing.T) {
	for name, slow := range map[string]func(*hooked, *dedup.Config){
		"hook": func(store *hooked, c *dedup.Config) {
			store.setBefore(only("Renew", down))
			c.Observer.LeaseLost = func(dedup.Event) { time.Sleep(5 * lease) }
		},
		"renewal": func(store *hooked, _ *dedup.Config) {
			store.setAfter(only("Renew", func(call) error { time.Sleep(5 * lease); return nil }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, func(c *dedup.Config) { slow(store, c) })
				_, err := lostAt(t, d, "k")
				require.ErrorIs(t, err, dedup.ErrLeaseLost)
				start := time.Now()
				require.NoError(t, closeWithin(d, 10*lease))
				assert.Greater(t, time.Since(start), lease)
			})
		})
	}
}
