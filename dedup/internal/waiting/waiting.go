// Package waiting lets calls wait for a key that is in flight. Of those that wait for one key, one
// polls at a time, and all are woken when the key has ended.
package waiting

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/internal/pause"
)

const (
	pollBase   = 10 * time.Millisecond
	pollAtMost = time.Second
)

// Keys counts the calls that wait for keys in flight, and wakes those whose key has ended. The
// zero Keys is ready, and safe for concurrent use.
type Keys struct {
	count atomic.Int64 // calls that wait
	keys  atomic.Int64 // len(by): most ends find nobody, and take no lock for it
	mu    sync.Mutex
	by    map[[16]byte]*Key
}

// Key is what the calls that wait for one key share. One of them polls at a time: a
// thousand waiters of a hot key ask the store as often as one does.
type Key struct {
	ended chan struct{}
	poll  chan struct{} // holds a value while somebody is the one to poll
	again chan struct{} // holds a value when one of them is to ask at once

	// guarded by Keys.mu
	n     int
	polls int
	taken bool // First has reported true
	// detach is the function stop that Attach was given.
	detach func()
	lapse  time.Time // when the lease that was seen last lapses
}

// Listen begins to wait for a key. stop ends it.
func (k *Keys) Listen(id [16]byte) (x *Key, stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = make(map[[16]byte]*Key)
	}
	x = k.by[id]
	if x == nil {
		x = &Key{ended: make(chan struct{}), poll: make(chan struct{}, 1),
			again: make(chan struct{}, 1)}
		k.by[id] = x
		k.keys.Store(int64(len(k.by)))
	}
	x.n++
	return x, func() {
		k.mu.Lock()
		x.n--
		var detach func()
		if x.n == 0 && k.by[id] == x {
			k.drop(id)
			detach = x.detach
		}
		k.mu.Unlock()
		call(detach)
	}
}

// First reports true to one caller for each Key. That caller has to call [Keys.Attach], or
// [Keys.Renounce].
func (k *Keys) First(x *Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !x.taken
	x.taken = true
	return first
}

// Renounce lets First report true once more.
func (k *Keys) Renounce(x *Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x.taken = false
}

// Attach makes one of the key's callers ask at once. stop is called when nobody waits for the key
// any more, which may be at once.
func (k *Keys) Attach(x *Key, stop func()) {
	select {
	case x.again <- struct{}{}:
	default:
	}
	k.mu.Lock()
	over := x.n == 0 || x.Ended()
	if !over {
		x.detach = stop
	}
	k.mu.Unlock()
	if over {
		stop()
	}
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// drop needs the mutex.
func (k *Keys) drop(id [16]byte) {
	delete(k.by, id)
	k.keys.Store(int64(len(k.by)))
}

// Seen notes how much longer the owner's lease lasts.
func (k *Keys) Seen(x *Key, remaining time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x.lapse = time.Now().Add(remaining)
}

// Wake wakes the callers that wait for a key. A caller that begins to wait later asks the store
// then.
func (k *Keys) Wake(id [16]byte) {
	if k.keys.Load() == 0 {
		return
	}
	k.mu.Lock()
	var detach func()
	if x := k.by[id]; x != nil {
		close(x.ended)
		k.drop(id)
		detach = x.detach
	}
	k.mu.Unlock()
	call(detach)
}

// Ended reports whether the key has ended since Listen.
func (x *Key) Ended() bool {
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// Wait waits until it is time to ask again, and reports false when the call is not to ask again.
// most bounds the calls that wait at the same time. begin is called when the call waits.
func (k *Keys) Wait(ctx context.Context, x *Key, deadline time.Time, most int,
	begin func()) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	defer k.count.Add(-1)
	if k.count.Add(1) > int64(most) {
		return false
	}
	begin()
	last := time.NewTimer(left) // time for one last question
	defer last.Stop()
	var due <-chan time.Time
	poll := x.poll
	for {
		select {
		case poll <- struct{}{}:
			defer func() { <-x.poll }()
			poll = nil
			timer := time.NewTimer(k.pause(x))
			defer timer.Stop()
			due = timer.C
		case <-due:
			return true
		case <-last.C:
			return true
		case <-x.ended:
			return true
		case <-x.again:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// pause returns how long to wait before the next poll. Full jitter spreads the processes that wait
// for a hot key; the poll is never later than the end of the lease last seen.
func (k *Keys) pause(x *Key) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := pollBase + pause.Jitter(pollBase, pollAtMost, x.polls)
	x.polls++
	if lease := time.Until(x.lapse); lease > 0 {
		wait = min(wait, lease+time.Millisecond)
	}
	return wait
}
