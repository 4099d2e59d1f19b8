package dedup_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// telling is a hooked store that reports Forgets, as Memory and Redis do.
type telling struct {
	*hooked
	offset uint64 // added to the number, as when the store has lost it
}

func tell() *telling { return &telling{hooked: hook()} }

func (s *telling) Forgets(ctx context.Context) (uint64, error) {
	c := s.begin(call{ctx: ctx, method: "Forgets", items: 1})
	answers := around(s.hooked, c, func() []forgetCount {
		n, err := s.inner.(driver.ForgetCounter).Forgets(context.WithoutCancel(ctx))
		return []forgetCount{{n + s.offset, err}}
	}, func(err error) forgetCount { return forgetCount{0, err} })
	return answers[0].n, answers[0].err
}

type forgetCount struct {
	n   uint64
	err error
}

// forgetFrom forgets a key as another process does.
func forgetFrom(t *testing.T, d *dedup.Deduper, key string) {
	t.Helper()
	require.NoError(t, d.Forget(t.Context(), key))
}

// duplicate claims a key that is done, and fails unless the outcome is Duplicate.
func duplicate(t *testing.T, d *dedup.Deduper, key string) {
	t.Helper()
	require.Equal(t, dedup.Duplicate, claim(t, d, key).Outcome)
}

// warm lets d look for the first time, which empties its cache.
func warm(t *testing.T, d *dedup.Deduper) {
	t.Helper()
	mark(t, d, "warm")
	duplicate(t, d, "warm")
	duplicate(t, d, "warm")
}

// This process remembers the keys that it ended itself for as long as the store does, and those
// that it read from the store for a minute.
func TestCacheLifeInAStoreThatTells(t *testing.T) {
	for name, row := range map[string]struct {
		learn func(*testing.T, *dedup.Deduper, *dedup.Deduper)
		life  time.Duration
	}{
		"own end": {func(t *testing.T, d, _ *dedup.Deduper) {
			mark(t, d, "k")
		}, time.Hour - time.Hour/100 - 2*time.Millisecond},
		"duplicate": {func(t *testing.T, d, o *dedup.Deduper) {
			mark(t, o, "k")
			duplicate(t, d, "k")
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := tell()
				d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
				warm(t, d)
				row.learn(t, d, other)
				time.Sleep(row.life - time.Millisecond)
				store.forgetCalls()
				duplicate(t, d, "k")
				assert.Equal(t, 0, store.count("Claim"), "claims before its time is over")
				time.Sleep(time.Millisecond)
				duplicate(t, d, "k")
				assert.Equal(t, 1, store.count("Claim"), "claims after its time")
			})
		})
	}
}

// Complete writes the record, but its reply is lost. Complete is called again ten seconds later.
// The cache entry must expire with the record, and not ten seconds after it.
func TestCacheEntryOfARepeatedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.Window, c.LeaseTTL = 64<<10, 20*time.Second, 20*time.Second
		})
		warm(t, d)
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(call) error { return errNet }))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Complete(ctx, nil)
		require.True(t, dedup.OutcomeUnknown(err), err)
		store.setAfter(nil)
		require.NoError(t, c.Complete(t.Context(), nil)) // ten seconds after it was written
		time.Sleep(10 * time.Second)
		acquire(t, d, "k")
	})
}

// The cache entry has the fingerprint that the store has, even if Mark was called without one.
func TestCacheEntryKnowsAnEarlierFingerprint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		warm(t, d)
		acquire(t, other, "k", dedup.WithFingerprint([]byte("a")))
		mark(t, d, "k")
		store.forgetCalls()
		require.Equal(t, dedup.Mismatch,
			claim(t, d, "k", dedup.WithFingerprint([]byte("b"))).Outcome)
		assert.Equal(t, 0, store.count("Claim"))
	})
}

// The promise to operators: a second after Forget has returned no process answers
// Duplicate from its cache, whether it is asked all the time or now and then, and however
// late the answer to its look arrives.
func TestForgetReachesOtherProcesses(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond,
		1000 * time.Millisecond, time.Minute} {
		for phase := range 10 {
			t.Run(fmt.Sprint(step, "/", phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					forgetElsewhere(t, step, time.Duration(phase)*50*time.Millisecond)
				})
			})
		}
	}
}

// forgetElsewhere has looks take 400 ms, half of them before they are executed.
func forgetElsewhere(t *testing.T, step, phase time.Duration) {
	t.Helper()
	store := tell()
	d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
	warm(t, d)
	mark(t, d, "k")
	slow := only("Forgets", func(call) error { time.Sleep(200 * time.Millisecond); return nil })
	store.setBefore(slow)
	store.setAfter(slow)
	var forgotten atomic.Pointer[time.Time]
	time.AfterFunc(min(200*step, 20*time.Minute)+phase, func() {
		assert.NoError(t, other.Forget(context.Background(), "k"))
		now := time.Now()
		forgotten.Store(&now)
	})
	duplicates := 0
	for ; claim(t, d, "k").Outcome == dedup.Duplicate; duplicates++ {
		at := forgotten.Load()
		require.True(t, at == nil || time.Since(*at) <= time.Second,
			"a duplicate more than a second after the Forget")
		time.Sleep(step)
	}
	assert.GreaterOrEqual(t, duplicates, 10, "duplicates before the Forget")
}

// The answer to a look is as old as the look's request, however late it arrives.
func TestALookIsAsOldAsItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store.inner, nil)
		warm(t, d)
		mark(t, d, "k")
		time.Sleep(time.Minute)
		store.setAfter(only("Forgets", func(call) error {
			forgetFrom(t, other, "k")
			time.Sleep(900 * time.Millisecond)
			return nil
		}))
		duplicate(t, d, "k") // 900 ms after the Forget
		store.setBefore(only("Forgets", down))
		time.Sleep(100 * time.Millisecond)
		acquire(t, d, "k")
	})
}

// A key that was cached before the first look may also have been forgotten before that look.
func TestForgetBeforeTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		mark(t, d, "k")
		forgetFrom(t, other, "k")
		acquire(t, d, "k")
	})
}

// The answer leaves the store before another process's Forget, and arrives after the look that
// noticed the Forget.
func TestAnswerUnderWayAcrossALookIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		warm(t, d)
		mark(t, d, "warm")
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(call) error { time.Sleep(3 * time.Second); return nil }))
		done := make(chan error, 1)
		go func() { done <- c.Complete(t.Context(), nil) }()
		synctest.Wait()
		forgetFrom(t, other, "k")
		time.Sleep(2 * time.Second)
		duplicate(t, d, "warm") // looks
		require.NoError(t, <-done)
		acquire(t, d, "k")
	})
}

// A busy process looks ahead: no hit waits, and none goes to the store.
func TestBusyCacheNeverMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d := newDeduper(t, store, cached(64<<10))
		warm(t, d)
		mark(t, d, "k")
		duplicate(t, d, "k")
		store.setAfter(only("Forgets", func(call) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		}))
		store.forgetCalls()
		for range 1000 {
			before := time.Now()
			duplicate(t, d, "k")
			require.Zero(t, time.Since(before), "a hit waited")
			time.Sleep(10 * time.Millisecond)
		}
		claims, looks := store.count("Claim"), store.count("Forgets")
		assert.Equal(t, 0, claims)
		assert.GreaterOrEqual(t, looks, 10)
		assert.LessOrEqual(t, looks, 20)
	})
}

// The cache does not look for Forgets while there is no hit to answer.
func TestIdleCacheDoesNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d := newDeduper(t, store, cached(64<<10))
		warm(t, d)
		store.forgetCalls()
		time.Sleep(time.Minute)
		for i := range 100 {
			mark(t, d, fmt.Sprint("k", i))
			time.Sleep(time.Second)
		}
		assert.Equal(t, 0, store.count("Forgets"), "looks without a hit")
	})
}

// While the number cannot be read, the store answers every call, and only one of many calls tries
// to read the number.
func TestCacheServesNothingItCannotVouchFor(t *testing.T) {
	for name, fault := range map[string]func(call) error{"down": down, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, told := tell(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) {
					c.CacheBytes, c.Observer = 64<<10, told.observer()
				})
				warm(t, d)
				requests := make([]dedup.Request, 50)
				for i := range requests {
					requests[i] = keyed(fmt.Sprint("k", i))
					mark(t, d, requests[i].Key)
				}
				time.Sleep(2 * time.Second)
				store.setBefore(only("Forgets", fault))
				store.forgetCalls()
				begin := time.Now()
				for _, c := range claimBatch(t, d, requests...) {
					require.Equal(t, dedup.Duplicate, c.Outcome)
				}
				assert.LessOrEqual(t, time.Since(begin), 2*time.Second, "Config.StoreTimeout")
				claims, looks := store.of("Claim"), store.count("Forgets")
				require.Len(t, claims, 1)
				assert.Equal(t, 50, claims[0].items)
				assert.Equal(t, 1, looks)
				events := told.of("store error")
				require.Len(t, events, 1)
				assert.Zero(t, events[0].ID)
				store.setBefore(nil)
				time.Sleep(time.Second)
				store.forgetCalls()
				duplicate(t, d, "k7")
				assert.Equal(t, 0, store.count("Claim"), "healed")
				assert.Equal(t, 1, store.count("Forgets"), "healed")
			})
		})
	}
}

// A store that loses its data also loses its number of Forgets. Any other number empties the cache.
func TestCacheIsEmptiedByAnyOtherNumber(t *testing.T) {
	for _, offset := range []uint64{1, 1<<64 - 1, 1 << 63} {
		synctest.Test(t, func(t *testing.T) {
			store := tell()
			d := newDeduper(t, store, cached(64<<10))
			warm(t, d)
			mark(t, d, "k")
			store.offset = offset
			time.Sleep(time.Second)
			n := asks(store.hooked, func() { duplicate(t, d, "k") })
			assert.Equal(t, 2, n, "a look, and a claim: number off by %d", offset)
		})
	}
}

// Many callers have hits after a long time without a look. One look serves all of them.
func TestConcurrentHitsShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d := newDeduper(t, store, cached(64<<10))
		warm(t, d)
		mark(t, d, "k")
		time.Sleep(time.Minute)
		store.setAfter(only("Forgets", func(call) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}))
		store.forgetCalls()
		for range 100 {
			go func() {
				c, err := d.Claim(t.Context(), "k")
				assert.True(t, err == nil && c.Outcome == dedup.Duplicate, "%+v, %v", c, err)
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := d.Claim(ctx, "k")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "a caller with less time")
		time.Sleep(time.Second)
		claims, looks := store.count("Claim"), store.count("Forgets")
		assert.Equal(t, 0, claims)
		assert.Equal(t, 1, looks)
	})
}

// Close waits for a look in the background.
func TestCloseWaitsForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d := newDeduper(t, store, cached(64<<10))
		warm(t, d)
		mark(t, d, "k")
		time.Sleep(600 * time.Millisecond)
		store.setAfter(only("Forgets", func(call) error { time.Sleep(time.Second); return nil }))
		duplicate(t, d, "k") // served, and a look begun
		begin := time.Now()
		require.NoError(t, d.Close(t.Context()))
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

// A hit makes nothing that Close could wait for. So Seen answers from the cache only before Close.
func TestSeenFromTheCacheAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, tell(), cached(64<<10))
		warm(t, d)
		seen, err := d.Seen(t.Context(), "warm")
		require.True(t, seen)
		require.NoError(t, err)
		require.NoError(t, d.Close(t.Context()))
		_, err = d.Seen(t.Context(), "warm")
		assert.ErrorIs(t, err, dedup.ErrClosed, "after Close")
	})
}

// Seen also learns of another process's Forget, and looks ahead for it.
func TestSeenLearnsOfForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tell()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		warm(t, d)
		mark(t, d, "k")
		time.Sleep(600 * time.Millisecond)
		store.forgetCalls()
		seen, err := d.Seen(t.Context(), "k")
		require.True(t, seen)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, 1, store.count("Forgets"), "looked ahead")
		forgetFrom(t, other, "k")
		time.Sleep(time.Second)
		seen, err = d.Seen(t.Context(), "k")
		assert.False(t, seen, "a second after the Forget")
		assert.NoError(t, err)
	})
}
