package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func cached(bytes int) func(*dedup.Config) {
	return func(c *dedup.Config) { c.CacheBytes = bytes }
}

// asks counts the calls to the store that fn makes.
func asks(store *hooked, fn func()) int {
	store.forgetCalls()
	fn()
	return store.count()
}

func TestCacheAnswersDuplicatesForAMinute(t *testing.T) {
	learn := map[string]func(*testing.T, *dedup.Deduper, *dedup.Deduper){
		"own end": func(t *testing.T, d, _ *dedup.Deduper) {
			_, err := do(t, d, "k", returns("v"))
			require.NoError(t, err)
		},
		"duplicate": func(t *testing.T, d, other *dedup.Deduper) {
			_, err := do(t, other, "k", returns("v"))
			require.NoError(t, err)
			require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
		},
		"batch": func(t *testing.T, d, other *dedup.Deduper) {
			_, err := do(t, other, "k", returns("v"))
			require.NoError(t, err)
			require.Equal(t, dedup.Duplicate, claimBatch(t, d, keyed("k"))[0].Outcome)
		},
		"seen": func(t *testing.T, d, other *dedup.Deduper) {
			_, err := do(t, other, "k", returns("v"))
			require.NoError(t, err)
			seen(t, d, "k")
		},
	}
	for name, learn := range learn {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
				learn(t, d, other)
				replay := func() {
					t.Helper()
					res, err := do(t, d, "k", mustNotRun(t))
					assert.True(t, err == nil && res.Value == "v" &&
						res.Outcome == dedup.Duplicate && seen(t, d, "k"), "%+v, %v", res, err)
				}
				time.Sleep(time.Minute - time.Millisecond)
				assert.Equal(t, 0, asks(store, replay), "calls to the store within a minute")
				time.Sleep(time.Millisecond)
				assert.NotZero(t, asks(store, replay), "the store was not asked after a minute")
			})
		})
	}
}

func TestCacheEntryEndsBeforeItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.Window, c.LeaseTTL = 64<<10, 20*time.Second, 10*time.Second
		})
		other := newDeduper(t, store, func(c *dedup.Config) { c.Window = 20 * time.Second })
		mark(t, other, "other")
		// the record is older than its answer
		store.setAfter(func(call) error { time.Sleep(time.Second); return nil })
		mark(t, d, "own")
		time.Sleep(14 * time.Second)
		// five seconds left, when it was asked
		require.Equal(t, dedup.Duplicate, claim(t, d, "other").Outcome)
		store.setAfter(nil)
		time.Sleep(4 * time.Second)
		acquire(t, d, "own")
		acquire(t, d, "other")
	})
}

// Nothing but what is finished may be answered from memory.
func TestCacheHoldsNothingUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		c := acquire(t, other, "k")
		require.Equal(t, dedup.InFlight, claim(t, d, "k").Outcome)
		seen(t, d, "k")
		n := asks(store, func() { require.Equal(t, dedup.InFlight, claim(t, d, "k").Outcome) })
		assert.Equal(t, 1, n)
		require.NoError(t, c.Release(t.Context()))
		again := acquire(t, d, "k")
		require.NoError(t, again.Release(t.Context()))
		acquire(t, d, "k")
	})
}

func TestCacheReplaysFailuresAndMismatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, cached(64<<10))
		_, _ = do(t, d, "failed", func(context.Context) (string, error) {
			return "", dedup.Permanent(errNet)
		})
		mark(t, d, "bound", dedup.WithFingerprint([]byte("a")))
		n := asks(store, func() {
			c := claim(t, d, "failed")
			err := c.Err()
			assert.True(t, err != nil &&
				err.Error() == "dedup: failed for good earlier: connection reset", "%v", err)
			require.Equal(t, dedup.Duplicate,
				claim(t, d, "bound", dedup.WithFingerprint([]byte("a"))).Outcome)
			require.Equal(t, dedup.Duplicate, claim(t, d, "bound").Outcome)
			odd := claim(t, d, "bound", dedup.WithFingerprint([]byte("b")))
			require.Equal(t, dedup.Mismatch, odd.Outcome)
			assert.Equal(t, driver.KeyReuse, odd.Cause)
			_, err = d.Seen(t.Context(), "bound", dedup.WithFingerprint([]byte("b")))
			require.ErrorIs(t, err, dedup.ErrMismatch)
		})
		assert.Equal(t, 0, n, "calls to the store")
	})
}

// A duplicate keeps growing older while it is in the cache.
func TestAgeGrowsInTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.Window, c.Observer = 64<<10, 80*time.Second, told.observer()
		})
		origin := func(r *dedup.Request) { r.Origin = driver.Origin{Source: "orders", Offset: 7} }
		_, err := dedup.Do(t.Context(), d, "k", returns("v"), origin)
		require.NoError(t, err)
		for _, row := range []struct {
			age   time.Duration
			cause driver.Cause
		}{{30 * time.Second, driver.BrokerRedelivery}, {50 * time.Second, driver.Late}} {
			time.Sleep(row.age - claim(t, d, "k").Record.Age)
			c := claim(t, d, "k", origin)
			assert.Equal(t, row.age, c.Record.Age)
			assert.Equal(t, row.cause, c.Cause)
			assert.Equal(t, 80*time.Second-row.age, c.Record.Remaining)
		}
		assert.Equal(t, 1, store.count("Claim"), "claims reached the store")
	})
}

func TestLargeResultsAreNotCached(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, cached(64<<10))
	for _, size := range []int{1 << 10, 1<<10 + 1} {
		key := fmt.Sprint(size)
		value := string(make([]byte, size))
		_, err := do(t, d, key, returns(value))
		require.NoError(t, err)
		n := asks(store, func() {
			res, err := do(t, d, key, mustNotRun(t))
			assert.True(t, err == nil && res.Value == value, "%d bytes, %v", len(res.Value), err)
		})
		assert.Equal(t, size-1<<10, n, "%d bytes", size)
	}
}

func TestForgetClearsTheCache(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, cached(64<<10))
	mark(t, d, "k")
	require.NoError(t, d.Forget(t.Context(), "k"))
	acquire(t, d, "k")
}

// An answer that left the store before the Forget was executed must not come back through the
// cache, nor through a shared attempt.
func TestAnswerUnderWayAcrossAForgetIsNotKept(t *testing.T) {
	for name, ask := range map[string]func(*testing.T, *dedup.Deduper){
		"claim": func(t *testing.T, d *dedup.Deduper) { _, _ = d.Claim(t.Context(), "k") },
		"batch": func(t *testing.T, d *dedup.Deduper) {
			_, _ = d.ClaimBatch(t.Context(), []dedup.Request{keyed("k")})
		},
		"seen": func(t *testing.T, d *dedup.Deduper) { _, _ = d.Seen(t.Context(), "k") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
				mark(t, other, "k")
				store.setAfter(func(c call) error {
					if c.method != "Forget" && c.nth == 1 {
						time.Sleep(time.Second)
					}
					return nil
				})
				store.forgetCalls()
				go ask(t, d)
				synctest.Wait()
				require.NoError(t, d.Forget(t.Context(), "k"))
				c := acquire(t, d, "k")
				time.Sleep(2 * time.Second)
				require.NoError(t, c.Release(t.Context()))
				acquire(t, d, "k")
			})
		})
	}
}

// The store executes the end before the Forget, and its answer arrives after the Forget.
func TestEndUnderWayAcrossAForgetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, cached(64<<10))
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(call) error { time.Sleep(time.Second); return nil }))
		done := make(chan error, 1)
		go func() { done <- c.Complete(t.Context(), nil) }()
		synctest.Wait()
		require.NoError(t, d.Forget(t.Context(), "k"))
		require.NoError(t, <-done)
		acquire(t, d, "k")
	})
}
