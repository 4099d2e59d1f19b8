package dedup

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pollBase   = 10 * time.Millisecond
	pollAtMost = time.Second
)

// waiters counts the calls that wait for keys in flight, and wakes those whose key
// ends in this process, or was found to have ended elsewhere.
type waiters struct {
	count atomic.Int64 // calls that wait
	keys  atomic.Int64 // len(by): most ends find nobody, and take no lock for it
	mu    sync.Mutex
	by    map[ID]*waiting
}

// waiting is what the calls that wait for one key share. One of them polls at a time: a
// thousand waiters of a hot key ask the store as often as one does.
type waiting struct {
	ended chan struct{}
	turn  chan struct{} // holds a value while somebody has the turn to poll

	// guarded by waiters.mu
	n     int
	polls int
	lapse time.Time // when the lease that was seen last lapses
}

// on begins to wait for a key. off ends it.
func (w *waiters) on(id ID) (x *waiting, off func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[ID]*waiting)
	}
	x = w.by[id]
	if x == nil {
		x = &waiting{ended: make(chan struct{}), turn: make(chan struct{}, 1)}
		w.by[id] = x
		w.keys.Store(int64(len(w.by)))
	}
	x.n++
	return x, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if x.n--; x.n == 0 && w.by[id] == x {
			w.drop(id)
		}
	}
}

// drop needs the mutex.
func (w *waiters) drop(id ID) {
	delete(w.by, id)
	w.keys.Store(int64(len(w.by)))
}

// seen notes how much longer the owner's lease lasts.
func (w *waiters) seen(x *waiting, remaining time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.lapse = time.Now().Add(remaining)
}

// wake does nothing for a caller that begins to wait after it, which asks the store only then.
func (w *waiters) wake(id ID) {
	if w.keys.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.by[id]; x != nil {
		close(x.ended)
		w.drop(id)
	}
}

// ended makes those look again who wait for the key, or share an attempt that was
// answered before its end.
func (d *Deduper) ended(id ID) {
	d.flights.leave(id)
	d.waiters.wake(id)
}

// claimWaiting claims, and while the key is in flight elsewhere asks again until
// Config.Wait has passed.
func (d *Deduper) claimWaiting(ctx context.Context, key string, req *ClaimRequest) *Claim {
	deadline := time.Now().Add(d.cfg.Wait)
	for {
		// Listening begins before asking: an end between the answer and the wait would
		// otherwise wake nobody.
		x, off := d.waiters.on(req.ID)
		c := d.claimListening(ctx, key, req, x, deadline)
		off()
		if c != nil {
			return c
		}
	}
}

// claimListening asks until it has an answer for the caller. It returns nil when x has ended
// and the caller has to listen to another one.
func (d *Deduper) claimListening(ctx context.Context, key string, req *ClaimRequest, x *waiting,
	deadline time.Time) *Claim {
	for {
		c := d.claimOnce(ctx, key, req)
		switch {
		case c.left():
			return c // there is nobody to wait for
		case c.Outcome == InFlight:
			d.waiters.seen(x, c.Record.Remaining)
		case c.Outcome == Duplicate, c.Outcome == Uncertain, c.Outcome == Unknown &&
			ctx.Err() == nil:
			d.waiters.wake(req.ID) // the others would get the same answer
			return c
		default: // they go on waiting; after Acquired it is for us
			return c
		}
		if !d.waitTurn(ctx, x, deadline) {
			return c
		}
		select {
		case <-x.ended:
			return nil
		default:
		}
	}
}

// waitTurn waits until it is time to ask again, and reports false when that will not be.
func (d *Deduper) waitTurn(ctx context.Context, x *waiting, deadline time.Time) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	defer d.waiters.count.Add(-1)
	if d.waiters.count.Add(1) > int64(d.cfg.MaxWaiters) {
		return false
	}
	last := time.NewTimer(left) // time for one last question
	defer last.Stop()
	var poll <-chan time.Time
	turn := x.turn
	for {
		select {
		case turn <- struct{}{}:
			defer func() { <-x.turn }()
			turn = nil
			timer := time.NewTimer(d.waiters.pause(x))
			defer timer.Stop()
			poll = timer.C
		case <-poll:
			return true
		case <-last.C:
			return true
		case <-x.ended:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// pause is how long to wait before the next poll. Full jitter spreads the processes
// that wait for a hot key; the poll is never later than the end of the lease last seen.
func (w *waiters) pause(x *waiting) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause := pollBase + jitter(pollBase, pollAtMost, x.polls)
	x.polls++
	if lease := time.Until(x.lapse); lease > 0 {
		pause = min(pause, lease+time.Millisecond)
	}
	return pause
}
