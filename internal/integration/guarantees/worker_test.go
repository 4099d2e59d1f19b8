package guarantees_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

const (
	lease  = 10 * time.Second
	window = 24 * time.Hour
)

// eachStore runs a test in fake time on the stores that live in this process.
func eachStore(t *testing.T, test func(t *testing.T, store dedup.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, dedup.Memory(1000)) })
	})
	t.Run("miniredis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, client := redistest.Bubble(t)
			store, err := redisadapter.New(t.Context(), client, redisadapter.Options{})
			require.NoError(t, err)
			test(t, store)
		})
	})
}

// worker is a process: a Deduper whose calls of the store do not return while it is paused, or
// once it is dead.
type worker struct {
	dedup.Store

	t      *testing.T
	d      *dedup.Deduper
	died   chan struct{}
	buried chan struct{}
	once   sync.Once
	lives  sync.WaitGroup

	mu     sync.Mutex
	paused chan struct{} // closed when it wakes up
}

func newWorker(t *testing.T, store dedup.Store, edit ...func(*dedup.Config)) *worker {
	t.Helper()
	w := &worker{Store: store, t: t, died: make(chan struct{}), buried: make(chan struct{})}
	cfg := dedup.Config{Namespace: "guarantees", Window: window, LeaseTTL: lease}
	for _, f := range edit {
		f(&cfg)
	}
	var err error
	w.d, err = dedup.New(w, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		close(w.buried)
		w.lives.Wait() // goroutines of a dead process must not outlive the test
		err := w.d.Close(context.Background())
		assert.False(t, err != nil && !w.dead(), err)
	})
	return w
}

func (w *worker) dead() bool {
	select {
	case <-w.died:
		return true
	default:
		return false
	}
}

// die ends the process during a handler. The handler does not return from it.
func (w *worker) die() {
	w.once.Do(func() { close(w.died) })
	<-w.buried
	runtime.Goexit()
}

// pause stops the process for d: its handler, which sleeps, and its renewals.
func (w *worker) pause(d time.Duration) {
	woken := make(chan struct{})
	w.mu.Lock()
	w.paused = woken
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
	w.paused = nil
	w.mu.Unlock()
	close(woken)
}

// stand waits while the process is paused. If the process is dead, it waits until the test ends.
func (w *worker) stand() (gone bool) {
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	if paused != nil {
		<-paused
	}
	if w.dead() {
		<-w.buried
		return true
	}
	return false
}

// live runs f as this process, until f has returned or the process has died.
func (w *worker) live(f func()) {
	done := make(chan struct{})
	w.lives.Go(func() {
		defer close(done)
		f()
	})
	select {
	case <-done:
	case <-w.died:
	}
}

var errDead = errors.New("the process is dead")

// Claim implements dedup.Store.
func (w *worker) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return calls(w, reqs, func() []driver.Answer {
		return w.Store.Claim(ctx, reqs)
	}, driver.Answer{Err: errDead})
}

// Renew implements dedup.Store.
func (w *worker) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return calls(w, renewals, func() []driver.Answer {
		return w.Store.Renew(ctx, renewals)
	}, driver.Answer{Err: errDead})
}

// Finish implements dedup.Store.
func (w *worker) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return calls(w, changes, func() []driver.Answer {
		return w.Store.Finish(ctx, changes)
	}, driver.Answer{Err: errDead})
}

// Lookup implements dedup.Store.
func (w *worker) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return calls(w, ids, func() []driver.Answer {
		return w.Store.Lookup(ctx, ids)
	}, driver.Answer{Err: errDead})
}

func calls[I, R any](w *worker, items []I, send func() []R, lost R) (replies []R) {
	if !w.stand() {
		if replies = send(); !w.stand() {
			return replies
		}
		replies = nil
	}
	for range items {
		replies = append(replies, lost)
	}
	return replies
}

// deliver gives message k to the process until it is done, and returns the result of the last try.
// The result is empty if a resolver without a result has said that the message is done.
func (w *worker) deliver(k string, handle func(ctx context.Context) (string, error),
	opts ...dedup.Option) (res dedup.Result[string]) {
	w.t.Helper()
	for range 100 {
		var err error
		if res, err = dedup.DoResult(w.t.Context(), w.d, k, handle, opts...); dedup.CanAck(err) {
			return res
		}
		require.ErrorIs(w.t, err, dedup.ErrInFlight, "the delivery")
		time.Sleep(time.Second)
	}
	w.t.Fatal("in flight forever")
	return res
}

// pass lets fake time pass.
func pass(d time.Duration) { time.Sleep(d) }

// tally counts effects by message.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func newTally() *tally { return &tally{count: map[string]int{}} }

func (n *tally) add(k string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count[k]++
}

func (n *tally) of(k string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[k]
}

func (n *tally) want(t *testing.T, k string, want int, why string) {
	t.Helper()
	assert.Equal(t, want, n.of(k), "%s: effects, %s", k, why)
}

// subject is a handler at level Claimed whose effects are counted.
func subject(n *tally) deduptest.Subject {
	return deduptest.Subject{
		Deliver: func(ctx context.Context, d *dedup.Deduper, message string) error {
			_, err := dedup.Do(ctx, d, message, func(context.Context) (string, error) {
				n.add(message)
				return "", nil
			})
			return err
		},
		Effects: n.of,
	}
}
