package dedup_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func waiting(wait time.Duration) func(*dedup.Config) {
	return func(c *dedup.Config) { c.Wait = wait }
}

// waitFor claims in the background. Its function returns the claim and how long it took.
func waitFor(t *testing.T, ctx context.Context, d *dedup.Deduper) func() (*dedup.Claim,
	time.Duration) {
	t.Helper()
	type answer struct {
		c     *dedup.Claim
		after time.Duration
	}
	done, start := make(chan answer, 1), time.Now()
	go func() {
		c, err := d.Claim(ctx, "k")
		assert.NoError(t, err)
		done <- answer{c, time.Since(start)}
	}()
	return func() (*dedup.Claim, time.Duration) { a := <-done; return a.c, a.after }
}

func TestWaiterIsWokenAtOnceWhenTheOwnerInItsProcessEnds(t *testing.T) {
	ends := map[string]func(*testing.T, *dedup.Deduper, *dedup.Claim) error{
		"complete": func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Complete(t.Context(), nil)
		},
		"fail": func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Fail(t.Context(), errNet)
		},
		"release": func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Release(t.Context())
		},
		"batch": func(t *testing.T, d *dedup.Deduper, c *dedup.Claim) error {
			d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c}})
			return nil
		},
		"mark": func(t *testing.T, d *dedup.Deduper, c *dedup.Claim) error {
			_, err := d.Mark(t.Context(), c.Key)
			return err
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, waiting(time.Minute))
				c := acquire(t, d, "k")
				_, stop := c.KeepAlive(t.Context())
				defer stop()
				wait := waitFor(t, t.Context(), d)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				polls := store.count("Claim")
				require.NoError(t, end(t, d, c))
				got, after := wait()
				want := dedup.Duplicate
				if name == "release" {
					want = dedup.Acquired
				}
				require.Equal(t, want, got.Outcome)
				assert.Equal(t, 30*time.Second, after)
				assert.Equal(t, 1, store.count("Claim")-polls, "claims after the end")
				assert.GreaterOrEqual(t, polls, 20)
				assert.LessOrEqual(t, polls, 500)
			})
		})
	}
}

func TestWaiterPollsForAnOwnerElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, waiting(time.Minute))
		c := acquire(t, a, "k")
		wait := waitFor(t, t.Context(), b)
		time.Sleep(5 * time.Second)
		require.NoError(t, c.Complete(t.Context(), []byte("v")))
		got, after := wait()
		require.Equal(t, dedup.Duplicate, got.Outcome)
		assert.LessOrEqual(t, after, 5*time.Second+1010*time.Millisecond)
		assert.Equal(t, "v", string(got.Record.Result))
	})
}

// When the waiter that polls for all leaves, another one polls. An answer that one waiter gets goes
// to all waiters at once.
func TestWaitersOfOneKeyPollInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		a, b := newDeduper(t, store.inner, nil), newDeduper(t, store, waiting(time.Minute))
		c := acquire(t, a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			waitFor(t, ctx, b)
			synctest.Wait()
		}
		var waits []func() (*dedup.Claim, time.Duration)
		for range 5 {
			waits = append(waits, waitFor(t, t.Context(), b))
		}
		time.Sleep(10 * time.Second)
		polls := store.count("Claim")
		time.Sleep(10 * time.Second)
		n := store.count("Claim") - polls
		assert.GreaterOrEqual(t, n, 10, "polls of five waiters")
		assert.LessOrEqual(t, n, 60)
		require.NoError(t, c.Complete(run, nil))
		var last time.Duration
		for i, wait := range waits {
			got, after := wait()
			require.Equal(t, dedup.Duplicate, got.Outcome)
			assert.False(t, i > 0 && after != last, "waiter %d learnt after %v, another after %v",
				i, after, last)
			assert.LessOrEqual(t, after, 21010*time.Millisecond)
			last = after
		}
	})
}

// A dead owner's key is taken over as soon as its lease has lapsed, not a poll later.
func TestWaiterTakesOverWhenTheLeaseLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, waiting(time.Minute))
		acquire(t, a, "k") // and dies
		got, after := waitFor(t, t.Context(), b)()
		require.Equal(t, dedup.Acquired, got.Outcome)
		assert.GreaterOrEqual(t, after, lease)
		assert.LessOrEqual(t, after, lease+time.Millisecond)
		assert.Equal(t, 2, got.Attempt)
	})
}

func TestWaitIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		a, b := newDeduper(t, store, nil), newDeduper(t, store, waiting(3*time.Second))
		acquire(t, a, "k")
		got, after := waitFor(t, t.Context(), b)()
		require.Equal(t, dedup.InFlight, got.Outcome)
		require.ErrorIs(t, got.Err(), dedup.ErrInFlight)
		assert.Equal(t, 3*time.Second, after, "when it gave up")
		// Every poll is an attempt of its own, with a token of its own. The lease counts from the
		// first send of its token, so an earlier poll must not have used it.
		tokens := map[driver.Token]bool{}
		for _, c := range store.of("Claim") {
			tokens[c.token] = true
		}
		assert.Len(t, tokens, store.count("Claim"))
	})
}

func TestWaitIsBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a := newDeduper(t, store, nil)
		b := newDeduper(t, store, func(c *dedup.Config) { c.Wait, c.MaxWaiters = 3*time.Second, 3 })
		acquire(t, a, "k")
		var waits []func() (*dedup.Claim, time.Duration)
		for range 5 {
			waits = append(waits, waitFor(t, t.Context(), b))
			synctest.Wait()
		}
		waited := 0
		for _, wait := range waits {
			c, after := wait()
			require.Equal(t, dedup.InFlight, c.Outcome)
			switch after {
			case 3 * time.Second:
				waited++
			case 0:
			default:
				t.Errorf("answered after %v", after)
			}
		}
		assert.Equal(t, 3, waited)
		// The places of those waiters are free again.
		_, after := waitFor(t, t.Context(), b)()
		assert.Equal(t, 3*time.Second, after, "when the next caller was answered")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, waiting(time.Minute))
		acquire(t, a, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start := time.Now()
		c, err := b.Claim(ctx, "k")
		assert.Equal(t, 2500*time.Millisecond, time.Since(start))
		assert.True(t, (err != nil || c.Outcome == dedup.InFlight) &&
			(err == nil || dedup.OutcomeUnknown(err)), "%+v, %v", c, err)
	})
}

// Two callers wait for one key. While the winner of the first round works, the other one waits
// again, for the new owner.
func TestWaitersOfOneKeyRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		d := newDeduper(t, store, waiting(time.Minute))
		first := acquire(t, d, "k")
		var mu sync.Mutex
		running, attempts := 0, 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, _ = do(t, d, "k", func(context.Context) (string, error) {
					mu.Lock()
					running++
					attempts++
					assert.Equal(t, 1, running, "two owners at a time")
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					return "", errNet
				})
			})
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, first.Release(t.Context()))
		wg.Wait()
		assert.Equal(t, 5, attempts)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

// ClaimBatch does not wait, because a consumer has other messages to handle.
func TestClaimBatchDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, waiting(time.Minute))
		acquire(t, a, "k")
		start := time.Now()
		claims, err := b.ClaimBatch(t.Context(), []dedup.Request{{Key: "k"}})
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.Equal(t, dedup.InFlight, claims[0].Outcome)
	})
}
