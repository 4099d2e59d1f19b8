package redisadapter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// memory is the time since which the server has kept all that it was told, as far as this process
// knows. The zero memory knows of no loss.
type memory struct {
	lapse atomic.Pointer[time.Time] // nil: none was seen
	evict atomic.Bool               // a server may drop keys when it is full
}

// lapsed notes that something was lost just now, or may have been.
func (m *memory) lapsed() {
	now := time.Now()
	m.lapse.Store(&now)
}

// Remembers returns for how long the server has certainly kept all that it was told, as far as this
// process has seen. That is the time since the last loss, suspicion, ClearAmnesia or Init that it
// noticed, and the largest Duration if it noticed none. It is 0 with GuardOff, which notices
// nothing. It is 0 as well once New, [Store.Watch] or a claim has met a server that may evict keys
// (its maxmemory-policy), or does not say whether it may.
//
// Losses are noticed with a batch of claims that wins some, so ask after that was answered. A loss
// before this process began counts only if it is not acknowledged yet. Remembers asks no server.
// Package layered looks for this method when it has a Filter.
func (s *Store) Remembers() time.Duration {
	m := &s.guard.memory
	if !s.guard.on() || m.evict.Load() {
		return 0
	}
	if at := m.lapse.Load(); at != nil {
		return time.Since(*at)
	}
	return math.MaxInt64
}

// evicting notes whether a server may drop keys, from what it says of itself.
func (m *memory) evicting(servers ...wire.Info) {
	for _, fields := range servers {
		if !fields.Embedded() && fields["maxmemory_policy"] != "noeviction" {
			m.evict.Store(true) // it stays: nobody has counted the keys evicted by then
		}
	}
}
