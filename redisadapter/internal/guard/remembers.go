package guard

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// memory is the time since which the server has kept all that was written, as far as this process
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

// Evicting notes whether a server may drop keys, from what it says of itself.
func (m *memory) Evicting(servers ...wire.Info) {
	for _, fields := range servers {
		if !fields.Embedded() && fields["maxmemory_policy"] != "noeviction" {
			m.evict.Store(true) // forever: nobody has counted the keys evicted so far
		}
	}
}

// Remembers is Store.Remembers.
func (g *Amnesia) Remembers() time.Duration {
	m := &g.Memory
	if !g.On() || m.evict.Load() {
		return 0
	}
	if at := m.lapse.Load(); at != nil {
		return time.Since(*at)
	}
	return math.MaxInt64
}
