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
	// wakesAtOnce bounds the keys of one Wake, and maxWakes the keys that wait for a Wake. The
	// waiters of more keys poll.
	wakesAtOnce = 256
	maxWakes    = 4096
	// A store that failed is left alone for a second, and twice as long with each failure after
	// that, up to a minute.
	minWakePause = time.Second
	maxWakePause = time.Minute
	// minWakeTime bounds a call if StoreTimeout is shorter, because the call may have to connect.
	minWakeTime = time.Second
)

// wakes tells waiters of other processes when a key has ended here, and learns when a key has ended
// there. It does so only with a Config.Wait, over a store that is a [driver.Waker].
type wakes struct {
	d     *Deduper
	store driver.Waker // nil: waiters of other processes poll

	mu      sync.Mutex
	queue   []driver.ID
	sending bool
	off     time.Time // until then nothing is tried
	pause   time.Duration
}

func newWakes(d *Deduper) *wakes {
	w := &wakes{d: d}
	if d.cfg.Wait > 0 {
		w.store, _ = d.store.(driver.Waker)
	}
	return w
}

// notify tells other processes that a key has ended, from a goroutine of its own: no effect
// waits for that.
func (w *wakes) notify(id driver.ID) {
	if w.store == nil || w.d.life.Closed() {
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
		ctx, cancel := w.within()
		err := w.store.Wake(ctx, ids)
		cancel()
		w.tried(err)
	}
}

// within bounds one call of the store.
func (w *wakes) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), max(w.d.cfg.StoreTimeout, minWakeTime))
}

// next takes what is to be sent next. When there is nothing, the sender ends.
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

// begin returns the function that a call runs when it begins to wait for x. For the first call, it
// starts a goroutine that subscribes to the key's end in other processes while the call polls.
func (w *wakes) begin(id driver.ID, x *waiting.Key) func() {
	return func() {
		if w.store == nil || w.paused() || w.d.life.Closed() || !w.d.waiters.First(x) {
			return
		}
		w.d.life.Begin()
		go w.listen(id, x)
	}
}

func (w *wakes) listen(id driver.ID, x *waiting.Key) {
	defer w.d.life.End()
	ctx, cancel := w.within()
	defer cancel()
	stop, err := w.store.Listen(ctx, id, func() { w.d.ended(id) })
	if w.tried(err); err != nil {
		w.d.waiters.Renounce(x)
		return
	}
	w.d.inflight.Leave(id) // the key may have ended before Listen: share no answer from before
	w.d.waiters.Attach(x, stop)
}

func (w *wakes) paused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.off)
}

// tried notes how a call of the store ended. After a failure the store is left alone for a while,
// and if the store had worked before, that is logged.
func (w *wakes) tried(err error) {
	w.mu.Lock()
	before := w.pause
	switch {
	case err == nil:
		w.pause = 0
	case errors.Is(err, errors.ErrUnsupported):
		w.pause = maxWakePause
	default:
		w.pause = min(max(2*w.pause, minWakePause), maxWakePause)
	}
	if err != nil {
		w.off, w.queue = time.Now().Add(w.pause), nil
	}
	w.mu.Unlock()
	if err != nil && before == 0 && !errors.Is(err, errors.ErrUnsupported) &&
		!w.d.life.Closed() {
		w.d.cfg.Logger.Warn("dedup: waiters of other processes are not woken, and poll",
			"error", err)
	}
}
