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

// bus is one store of several processes, with news between them.
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
		b.onListen()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners[id], &woken)
	}, nil
}

// left is how many listen.
func (b *bus) left() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range b.listeners {
		n += len(of)
	}
	return n
}

// TestWaiterIsWokenAtOnceWhenTheOwnerInAnotherProcessEnds: at the very instant, whereas a poll is
// up to a second away.
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

// TestAnEndBeforeListeningIsNotMissed: a waiter asks once more when it has begun to listen.
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

// TestNobodyPaysForNewsWhoDoesNotWait: without a Wait nothing is sent and nobody listens.
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

// TestWithoutNewsWaitersPoll: a store that may not, or cannot, is left alone for a minute, and
// that is said once, or not at all where nothing is wrong.
func TestWithoutNewsWaitersPoll(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		said int
	}{
		"no permission": {errors.New("NOPERM"), 1},
		"unsupported":   {errors.ErrUnsupported, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newBus()
				store.err = row.err
				var log strings.Builder
				logged := func(c *dedup.Config) {
					c.Wait, c.Logger = time.Minute, slog.New(slog.NewTextHandler(&log, nil))
				}
				owner, other := newDeduper(t, store, waiting(time.Minute)),
					newDeduper(t, store, logged)
				for _, key := range []string{"k", "again"} {
					c := acquire(t, owner, key)
					_, stop := c.KeepAlive(t.Context())
					wait := make(chan time.Duration, 1)
					start := time.Now()
					go func() {
						got, err := other.Claim(t.Context(), key)
						assert.NoError(t, err)
						assert.Equal(t, dedup.Duplicate, got.Outcome)
						wait <- time.Since(start)
					}()
					time.Sleep(10 * time.Second)
					require.NoError(t, c.Complete(t.Context(), nil))
					assert.Less(t, <-wait, 12*time.Second)
					stop()
				}
				synctest.Wait()
				assert.Equal(t, 1, store.listening, "within a minute")
				assert.Equal(t, row.said, strings.Count(log.String(), "are not woken"))
				time.Sleep(time.Minute)
				c := acquire(t, owner, "later")
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := other.Claim(short, "later")
				require.NoError(t, err)
				assert.Equal(t, 2, store.listening, "after a minute")
				assert.Equal(t, row.said, strings.Count(log.String(), "are not woken"))
				require.NoError(t, c.Complete(t.Context(), nil))
			})
		})
	}
}
