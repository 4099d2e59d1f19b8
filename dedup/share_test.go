package dedup_test

import (
	"context"
	"errors"
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

// crowd calls Do for one key from n goroutines at once and counts how they ended.
func crowd(t *testing.T, d *dedup.Deduper,
	n int, fn func(context.Context) (string, error)) map[driver.Outcome]int {
	t.Helper()
	var mu sync.Mutex
	outcomes := map[driver.Outcome]int{}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			res, err := dedup.DoResult(t.Context(), d, "k", fn)
			assert.Equal(t, res.Outcome == dedup.Acquired || res.Outcome == dedup.Duplicate,
				err == nil, err)
			mu.Lock()
			defer mu.Unlock()
			outcomes[res.Outcome]++
		})
	}
	wg.Wait()
	return outcomes
}

func TestThousandCallsOfOneKeyShareOneClaimAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var runs atomic.Int32
		outcomes := crowd(t, d, 1000, func(context.Context) (string, error) {
			runs.Add(1)
			time.Sleep(time.Second)
			return "v", nil
		})
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, 1, store.count("Claim"))
		require.Equal(t, 1, store.count("Finish"))
		require.Equal(t, 1, outcomes[dedup.Acquired])
		require.Equal(t, 999, outcomes[dedup.InFlight])
	})
}

func TestThousandWaitingCallsOfOneKeyGetOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.Wait = time.Minute })
		var runs atomic.Int32
		polls := 0
		store.setBefore(only("Claim", func(call) error {
			time.Sleep(time.Millisecond)
			return nil
		}))
		outcomes := crowd(t, d, 1000, func(context.Context) (string, error) {
			runs.Add(1)
			time.Sleep(30 * time.Second)
			polls = store.count("Claim")
			return "v", nil
		})
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, 1, outcomes[dedup.Acquired])
		require.Equal(t, 999, outcomes[dedup.Duplicate])
		assert.GreaterOrEqual(t, polls, 30, "polls of a thousand waiters")
		assert.LessOrEqual(t, polls, 150)
	})
}

// In real time, for the race detector: many processes, many keys, one effect for each key.
func TestConcurrentCallsRunEachEffectOnce(t *testing.T) {
	store := dedup.Memory(1000)
	var runs [20]atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Wait, c.CacheBytes = time.Minute, 64<<10
		})
		for i := range 200 {
			wg.Go(func() {
				n := i % len(runs)
				res, err := do(t, d, fmt.Sprint("k", n), func(context.Context) (string, error) {
					runs[n].Add(1)
					return fmt.Sprint("v", n), nil
				})
				assert.True(t, err == nil && res.Value == fmt.Sprint("v", n), "%+v, %v", res, err)
			})
		}
	}
	wg.Wait()
	for n := range runs {
		assert.EqualValues(t, 1, runs[n].Load(), "effect %d", n)
	}
}

// When the leader's caller leaves, one of the followers asks the store itself.
func TestFollowerTakesOverFromACancelledLeader(t *testing.T) {
	for _, mode := range []dedup.Mode{dedup.Enforce, dedup.Observe} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := hook(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) {
					c.Mode, c.Observer = mode, seen.observer()
				})
				store.setBefore(only("Claim", func(c call) error {
					if c.nth == 1 {
						return hang(c)
					}
					return nil
				}))
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _, _ = d.Claim(ctx, "k") }()
				synctest.Wait()
				followers := make(chan *dedup.Claim, 10)
				for range cap(followers) {
					go func() {
						c, err := d.Claim(t.Context(), "k")
						assert.NoError(t, err)
						followers <- c
					}()
				}
				synctest.Wait()
				cancel()
				won := 0
				for range cap(followers) {
					if c := <-followers; c.Observed == dedup.Acquired {
						won++
					} else {
						assert.Equal(t, dedup.InFlight, c.Observed)
					}
				}
				assert.Equal(t, 1, won)
			})
		})
	}
}

// inBackground claims the key and delivers the claim, or nil.
func inBackground(t *testing.T, d *dedup.Deduper, opts ...dedup.Option) <-chan *dedup.Claim {
	done := make(chan *dedup.Claim, 1)
	go func() {
		c, err := d.Claim(t.Context(), "k", opts...)
		assert.NoError(t, err)
		done <- c
	}()
	return done
}

// A follower is bound to its own context, not to the leader's.
func TestFollowerLeavesWhenItsOwnContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		leader := inBackground(t, d)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := d.Claim(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, dedup.OutcomeUnknown(err))
		require.Equal(t, 500*time.Millisecond, time.Since(start))
		require.Equal(t, dedup.Acquired, (<-leader).Outcome)
	})
}

// Every follower gets its own copy of the result, and may write into it.
func TestFollowersDoNotShareTheirResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "k", returns("abc"))
		require.NoError(t, err)
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				value, err := dedup.Do(t.Context(), d, "k", func(context.Context) ([]byte, error) {
					return nil, errNet
				})
				if !assert.True(t, err == nil && string(value) == "abc", "%q, %v", value, err) {
					return
				}
				value[0] = byte(i)
			})
		}
		wg.Wait()
	})
}

// Every follower also gets its own copy of the steps. The race detector finds a shared one.
func TestFollowersDoNotShareTheSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			_, err := dedup.Step(ctx, "charge", returns("ch_1"))
			return "", errors.Join(err, errNet)
		})
		require.ErrorIs(t, err, errNet)
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				c, err := d.Claim(t.Context(), "k")
				if !assert.True(t, err == nil && len(c.Record.Steps) != 0, "%+v, %v", c, err) {
					return
				}
				c.Record.Steps[0]++
			})
		}
		wg.Wait()
	})
}

// Calls with different payloads share one claim attempt. Each payload is compared with the answer
// to that attempt.
func TestSharedAttemptComparesEveryFingerprint(t *testing.T) {
	a, b := dedup.WithFingerprint([]byte("a")), dedup.WithFingerprint([]byte("b"))
	for name, row := range map[string]struct {
		before         func(*testing.T, *dedup.Deduper) // what the key is bound to
		leader, other  dedup.Option
		led, followed  driver.Outcome
		wantStoreCalls int
	}{
		"new key, another payload":    {nil, a, b, dedup.Acquired, dedup.Mismatch, 1},
		"new key, same payload":       {nil, a, a, dedup.Acquired, dedup.InFlight, 1},
		"done key, another payload":   {markWith(a), a, b, dedup.Duplicate, dedup.Mismatch, 1},
		"done key, the leader is odd": {markWith(b), a, b, dedup.Mismatch, dedup.Duplicate, 1},
		"done key, both are odd":      {markWith(b), a, a, dedup.Mismatch, dedup.Mismatch, 1},
		"released key, the leader is odd": {releaseWith(b), a, b, dedup.Mismatch,
			dedup.Acquired, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				if row.before != nil {
					row.before(t, d)
				}
				store.forgetCalls()
				store.setBefore(only("Claim", func(call) error {
					time.Sleep(time.Second)
					return nil
				}))
				leader := inBackground(t, d, row.leader)
				synctest.Wait()
				follower := inBackground(t, d, row.other)
				require.Equal(t, row.led, (<-leader).Outcome)
				require.Equal(t, row.followed, (<-follower).Outcome)
				assert.Equal(t, row.wantStoreCalls, store.count("Claim"))
			})
		})
	}
}

func markWith(opt dedup.Option) func(*testing.T, *dedup.Deduper) {
	return func(t *testing.T, d *dedup.Deduper) {
		_, err := d.Mark(t.Context(), "k", opt)
		require.NoError(t, err)
	}
}

func releaseWith(opt dedup.Option) func(*testing.T, *dedup.Deduper) {
	return func(t *testing.T, d *dedup.Deduper) {
		require.NoError(t, acquire(t, d, "k", opt).Release(t.Context()))
	}
}

// N callers of one key wait once, and not N times, for a store that is away.
func TestStoreOutageIsSharedAndNotQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Claim", hang)) // two seconds each, four times
		start := time.Now()
		outcomes := crowd(t, d, 500, mustNotRun(t))
		assert.LessOrEqual(t, time.Since(start), 9*time.Second, "500 callers waited")
		assert.Equal(t, 500, outcomes[dedup.Unknown])
		assert.Equal(t, 4, store.count("Claim"))
	})
}

// A call that begins after its own key has ended must not get the answer to an attempt that began
// before that end.
func TestCallAfterAnEndDoesNotJoinAnOlderAttempt(t *testing.T) {
	ends := map[string]struct {
		end  func(*testing.T, *dedup.Claim) error
		want driver.Outcome
	}{
		"completed": {func(t *testing.T, c *dedup.Claim) error {
			return c.Complete(t.Context(), nil)
		}, dedup.Duplicate},
		"released": {func(t *testing.T, c *dedup.Claim) error {
			return c.Release(t.Context())
		}, dedup.Acquired},
	}
	for name, row := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				c := acquire(t, d, "k")
				store.setAfter(only("Claim", func(c call) error {
					if c.nth == 2 {
						time.Sleep(time.Second) // answered "in flight", and slow to say so
					}
					return nil
				}))
				go func() { _, _ = d.Claim(t.Context(), "k") }()
				synctest.Wait()
				require.NoError(t, row.end(t, c))
				require.Equal(t, row.want, claim(t, d, "k").Outcome)
			})
		})
	}
}

// When an observer panics in the leader, its followers still get an answer.
func TestPanicInALeadersObserverFreesItsFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		var once sync.Once
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Observer.Claimed = func(dedup.Event) { once.Do(func() { panic("hook") }) }
		})
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		go func() {
			defer func() { _ = recover() }()
			_, _ = d.Claim(t.Context(), "k")
		}()
		synctest.Wait()
		// The lost claim holds the key until it lapses. The follower does not hang on it.
		require.Equal(t, dedup.InFlight, claim(t, d, "k").Outcome)
	})
}
