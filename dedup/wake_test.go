package dedup_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// bus is one store of several processes that can notify each other.
type bus struct {
	*hooked
	mu        sync.Mutex
	listeners map[driver.ID]map[*func()]bool
	err       error
	woken     int
	listening int // calls of Listen
	onListen  func()
}

func newBus() *bus {
	return &bus{hooked: hook(), listeners: make(map[driver.ID]map[*func()]bool)}
}

func (b *bus) Wake(_ context.Context, ids []driver.ID) error {
	b.mu.Lock()
	b.woken += len(ids)
	var all []func()
	for _, id := range ids {
		for l := range b.listeners[id] {
			all = append(all, *l)
		}
	}
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return err
	}
	for _, woken := range all {
		woken()
	}
	return nil
}

func (b *bus) Listen(_ context.Context, id driver.ID, woken func()) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listening++
	if b.err != nil {
		return nil, b.err
	}
	if b.listeners[id] == nil {
		b.listeners[id] = make(map[*func()]bool)
	}
	b.listeners[id][&woken] = true
	if b.onListen != nil {
		b.mu.Unlock()
		b.onListen()
		b.mu.Lock()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners[id], &woken)
	}, nil
}

// left returns how many listeners there are.
func (b *bus) left() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range b.listeners {
		n += len(of)
	}
	return n
}

// TestWaiterIsWokenAtOnceWhenTheOwnerInAnotherProcessEnds: the waiter returns at the instant of the
// end. A poll would come up to a second later.
func TestWaiterIsWokenAtOnceWhenTheOwnerInAnotherProcessEnds(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(t *testing.T, d *dedup.Deduper, c *dedup.Claim) error
		want driver.Outcome
	}{
		"complete": {func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Complete(t.Context(), nil)
		}, dedup.Duplicate},
		"fail": {func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Fail(t.Context(), errNet)
		}, dedup.Duplicate},
		"release": {func(t *testing.T, _ *dedup.Deduper, c *dedup.Claim) error {
			return c.Release(t.Context())
		}, dedup.Acquired},
		"batch": {func(t *testing.T, d *dedup.Deduper, c *dedup.Claim) error {
			return errors.Join(d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c}})...)
		}, dedup.Duplicate},
		"mark": {func(t *testing.T, d *dedup.Deduper, c *dedup.Claim) error {
			_, err := d.Mark(t.Context(), c.Key)
			return err
		}, dedup.Duplicate},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newBus()
				owner := newDeduper(t, store, waiting(time.Minute))
				other := newDeduper(t, store, waiting(time.Minute))
				c := acquire(t, owner, "k")
				_, stop := c.KeepAlive(t.Context())
				defer stop()
				waits := []func() (*dedup.Claim, time.Duration){waitFor(t, t.Context(), other)}
				if row.want == dedup.Duplicate {
					waits = append(waits, waitFor(t, t.Context(), other))
				}
				time.Sleep(30*time.Second + 7*time.Millisecond)
				synctest.Wait()
				assert.Equal(t, 1, store.left(), "listeners of one key in one process")
				require.NoError(t, row.end(t, owner, c))
				for _, wait := range waits {
					got, after := wait()
					assert.Equal(t, row.want, got.Outcome)
					assert.Equal(t, 30*time.Second+7*time.Millisecond, after)
				}
				synctest.Wait()
				assert.Zero(t, store.left(), "nobody waits any more")
			})
		})
	}
}

// TestAnEndBeforeListeningIsNotMissed: a waiter asks again after it has begun to listen.
func TestAnEndBeforeListeningIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		owner := newDeduper(t, store, nil)
		c := acquire(t, owner, "k")
		store.onListen = func() { assert.NoError(t, c.Complete(t.Context(), nil)) }
		got, after := waitFor(t, t.Context(), newDeduper(t, store, waiting(time.Minute)))()
		assert.Equal(t, dedup.Duplicate, got.Outcome)
		assert.Zero(t, after)
	})
}

// TestNobodyPaysForNewsWhoDoesNotWait: without Wait no notification is sent, and nobody listens.
func TestNobodyPaysForNewsWhoDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "k", returns("v"))
		require.NoError(t, err)
		_, err = d.Mark(t.Context(), "m")
		require.NoError(t, err)
		synctest.Wait()
		assert.Zero(t, store.woken)
		assert.Zero(t, store.listening)
	})
}

// TestWithoutNewsWaitersPoll: when Listen fails, waiters poll, and try Listen ever more rarely. The
// failure is logged once, or not at all if Listen is unsupported. When Listen works, it wakes them.
func TestWithoutNewsWaitersPoll(t *testing.T) {
	for name, row := range map[string]struct {
		err         error
		said        int
		least, most int // calls of Listen in 40 s
	}{
		"no permission": {errors.New("NOPERM"), 1, 3, 6},
		"unsupported":   {errors.ErrUnsupported, 0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newBus()
				store.err = row.err
				var log strings.Builder
				owner := newDeduper(t, store, waiting(5*time.Minute))
				other := newDeduper(t, store, func(c *dedup.Config) {
					c.Wait, c.Logger = 5*time.Minute, slog.New(slog.NewTextHandler(&log, nil))
				})
				late := func(key string, works time.Duration) time.Duration {
					c := acquire(t, owner, key)
					_, stop := c.KeepAlive(t.Context())
					defer stop()
					answered := make(chan time.Time, 1)
					go func() {
						got, err := other.Claim(t.Context(), key)
						assert.NoError(t, err)
						assert.Equal(t, dedup.Duplicate, got.Outcome)
						answered <- time.Now()
					}()
					time.Sleep(works)
					require.NoError(t, c.Complete(t.Context(), nil))
					ended := time.Now()
					return (<-answered).Sub(ended)
				}
				for _, key := range []string{"k", "again"} {
					assert.Less(t, late(key, 20*time.Second+time.Millisecond), 2*time.Second)
				}
				store.mu.Lock()
				assert.GreaterOrEqual(t, store.listening, row.least)
				assert.LessOrEqual(t, store.listening, row.most)
				store.err = nil
				store.mu.Unlock()
				assert.Equal(t, row.said, strings.Count(log.String(), "are not woken"))
				late("recovers", 2*time.Minute)
				assert.Zero(t, late("later", 20*time.Second+time.Millisecond))
				assert.Equal(t, row.said, strings.Count(log.String(), "are not woken"))
			})
		})
	}
}

// TestWhoMayNotWaitDoesNotListen: a call beyond MaxWaiters costs no subscription.
func TestWhoMayNotWaitDoesNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		owner := newDeduper(t, store, nil)
		acquire(t, owner, "a")
		acquire(t, owner, "b")
		d := newDeduper(t, store, func(c *dedup.Config) { c.Wait, c.MaxWaiters = time.Second, 1 })
		go func() { _, _ = d.Claim(t.Context(), "a") }()
		synctest.Wait()
		c, err := d.Claim(t.Context(), "b")
		require.NoError(t, err)
		assert.Equal(t, dedup.InFlight, c.Outcome)
		synctest.Wait()
		assert.Equal(t, 1, store.listening)
	})
}

// TestAWaiterListensAgain: a wake-up without an end, as when a connection is lost, ends the
// subscription. The waiter subscribes again.
func TestAWaiterListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		owner := newDeduper(t, store, waiting(time.Minute))
		c := acquire(t, owner, "k")
		_, stop := c.KeepAlive(t.Context())
		defer stop()
		wait := waitFor(t, t.Context(), newDeduper(t, store, waiting(time.Minute)))
		time.Sleep(10 * time.Second)
		id, err := driver.NewID("test", "", "k")
		require.NoError(t, err)
		require.NoError(t, store.Wake(t.Context(), []driver.ID{id}))
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 2, store.listening)
		assert.Equal(t, 1, store.left())
		require.NoError(t, c.Complete(t.Context(), nil))
		_, after := wait()
		assert.Equal(t, 20*time.Second+time.Millisecond, after)
	})
}

// TestASlowStoreHoldsUpNoWaiter: a waiter does not wait for Listen, and polls until it returns.
func TestASlowStoreHoldsUpNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		store.onListen = func() { time.Sleep(5 * time.Second) }
		owner := newDeduper(t, store, nil)
		c := acquire(t, owner, "k")
		d := newDeduper(t, store, waiting(time.Second))
		got, after := waitFor(t, t.Context(), d)()
		assert.Equal(t, dedup.InFlight, got.Outcome)
		assert.Equal(t, time.Second, after)
		require.NoError(t, c.Complete(t.Context(), nil))
	})
}

// TestAnEndThatWroteNothingIsNoNews: other waiters would ask the store for nothing.
func TestAnEndThatWroteNothingIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newBus()
		d := newDeduper(t, store, waiting(time.Minute))
		for range 2 {
			_, err := d.Mark(t.Context(), "k")
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, 1, store.woken)
	})
}
