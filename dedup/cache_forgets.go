package dedup

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/internal/drain"
)

const (
	// forgetsEvery is how old the newest look at a store's Forgets may be when a hit is
	// served, and so how long another process's Forget can go unnoticed here.
	forgetsEvery = time.Second
	// forgetsAhead is when a busy cache looks again, so that its hits never wait. It is
	// also the pause after a look that failed.
	forgetsAhead = forgetsEvery / 2
)

// forgetWatch looks whether another process has forgotten something, and then empties the
// cache. It looks only while there are hits to serve, and has a goroutine only while it
// looks. A nil watch is that of a store that cannot tell.
type forgetWatch struct {
	store   ForgetCounter
	cache   *cache
	timeout time.Duration
	life    *drain.Group
	failed  func(Event) // may be nil

	// last is when the newest answer was asked for; an answer is as old as its question.
	last atomic.Int64
	// next is when to look again: never while somebody looks.
	next atomic.Int64

	mu     sync.Mutex
	newest *forgetLook
	// The first answer is a change too: entries from before it may have been forgotten.
	known bool
	value uint64
}

// forgetLook is one question to the store.
type forgetLook struct {
	done chan struct{}
	ok   bool // set before done is closed
}

func newForgetWatch(store ForgetCounter, cfg *Config, life *drain.Group, c *cache) *forgetWatch {
	w := &forgetWatch{store: store, cache: c, timeout: cfg.StoreTimeout, life: life,
		failed: cfg.Observer.StoreError}
	w.last.Store(int64(-forgetsEvery))
	return w
}

// readAt returns when the newest answer was asked for.
func (w *forgetWatch) readAt() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.last.Load())
}

// covers reports whether a hit may be served at now with an answer from read, and looks
// ahead when it soon may not.
func (w *forgetWatch) covers(read, now time.Duration) bool {
	if w == nil {
		return true
	}
	age := now - read
	if age >= forgetsAhead && now >= time.Duration(w.next.Load()) {
		w.look()
	}
	return age < forgetsEvery
}

// fresh reports whether a hit may be served at now with an answer from read, and it is too
// early to look ahead.
func (w *forgetWatch) fresh(read, now time.Duration) bool {
	return w == nil || now-read < forgetsAhead
}

// await waits for the newest look, which is under way or has just ended, and reports
// whether it succeeded. All callers wait for the same one: each would have had a round
// trip of its own.
func (w *forgetWatch) await(ctx context.Context) bool {
	look := w.look()
	select {
	case <-look.done:
		return look.ok
	case <-ctx.Done():
		return false
	}
}

// look begins a look when it is time for one, and returns the newest. Soon after a
// failure that is the one that failed: a store that hangs must not hold up every hit.
func (w *forgetWatch) look() *forgetLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cache.clock()
	if now >= time.Duration(w.next.Load()) {
		w.newest = &forgetLook{done: make(chan struct{})}
		w.next.Store(math.MaxInt64)
		w.life.Begin()
		go w.ask(w.newest, now)
	}
	return w.newest
}

// ask belongs to no caller: others wait for it too, or nobody does.
func (w *forgetWatch) ask(look *forgetLook, sent time.Duration) {
	defer w.life.End()
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	value, err := w.store.Forgets(ctx)
	if err != nil {
		fire(w.failed, Event{Err: err})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(look.done)
	if err != nil {
		w.next.Store(int64(w.cache.clock() + forgetsAhead))
		return
	}
	if !w.known || value != w.value {
		w.cache.table.empty() // before last says that hits are good again
	}
	w.known, w.value = true, value
	w.last.Store(int64(sent))
	w.next.Store(int64(sent + forgetsAhead))
	look.ok = true
}
