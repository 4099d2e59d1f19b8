package dedup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/waiting"
)

const (
	// wakesAtOnce bounds the keys of one Wake, and maxWakes those that wait for one. Beyond it
	// waiters poll.
	wakesAtOnce = 256
	maxWakes    = 4096
	// wakePause is how long a store is left alone that could not do it: it lacks a permission,
	// or a proxy stands in front of it.
	wakePause = time.Minute
)

// wakes tells waiters of other processes when a key has ended here, and hears of ends there. Only
// a Deduper with a Config.Wait has it, over a store that is a [driver.Waker].
type wakes struct {
	d     *Deduper
	store driver.Waker // nil: waiters of other processes poll

	mu      sync.Mutex
	queue   []driver.ID
	sending bool
	off     time.Time // until then nothing is tried
	said    bool      // that it does not work
}

func newWakes(d *Deduper) *wakes {
	w := &wakes{d: d}
	if d.cfg.Wait > 0 {
		w.store, _ = d.store.(driver.Waker)
	}
	return w
}

// notify tells other processes that a key has ended, by a goroutine of its own: nobody's effect
// waits for that.
func (w *wakes) notify(id driver.ID) {
	if w.store == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == maxWakes || time.Now().Before(w.off) {
		return
	}
	w.queue = append(w.queue, id)
	if !w.sending {
		w.sending = true
		w.d.life.Begin()
		go w.send()
	}
}

func (w *wakes) send() {
	defer w.d.life.End()
	for ids := w.next(); ids != nil; ids = w.next() {
		ctx, cancel := context.WithTimeout(context.Background(), w.d.cfg.StoreTimeout)
		err := w.store.Wake(ctx, ids)
		cancel()
		if err != nil {
			w.failed(err)
		}
	}
}

// next takes what is to be told next. When that is nothing the sender ends.
func (w *wakes) next() []driver.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue, w.sending = nil, false
		return nil
	}
	n := min(len(w.queue), wakesAtOnce)
	ids := w.queue[:n:n]
	w.queue = w.queue[n:]
	return ids
}

// listen has x hear of the key's end in other processes, and reports true when that has just
// begun: the key may have ended before, so its caller asks once more.
func (w *wakes) listen(ctx context.Context, id driver.ID, x *waiting.Key) bool {
	if w.store == nil || w.paused() || !w.d.waiters.First(x) {
		return false
	}
	within, cancel := context.WithTimeout(ctx, w.d.cfg.StoreTimeout)
	defer cancel()
	stop, err := w.store.Listen(within, id, func() { w.d.waiters.Wake(id) })
	if err != nil {
		if ctx.Err() == nil {
			w.failed(err)
		}
		return false
	}
	w.d.waiters.Attach(x, stop)
	return true
}

func (w *wakes) paused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.off)
}

// failed leaves the store alone for a while, and says so once.
func (w *wakes) failed(err error) {
	w.mu.Lock()
	w.off, w.queue = time.Now().Add(wakePause), nil
	first := !w.said
	w.said = true
	w.mu.Unlock()
	if first && !errors.Is(err, errors.ErrUnsupported) {
		w.d.cfg.Logger.Warn("dedup: waiters of other processes are not woken, and poll",
			"error", err)
	}
}
