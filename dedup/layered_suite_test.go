package dedup_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
)

// exact is a filter over a Memory store that lags behind by nothing but what a test asks for.
type exact struct {
	store dedup.Store
	mu    sync.Mutex
	lag   time.Duration // how far behind the last scan is
	asked int
	wrong int
	maybe map[dedup.ID]bool // false positives
}

// Absent reads the store as a scan would have left it.
func (e *exact) Absent(id [16]byte, before time.Duration) (bool, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.maybe[id] {
		return false, "maybe"
	}
	if before < e.lag {
		return false, "expired"
	}
	ans := e.store.Lookup(context.Background(), []dedup.ID{id})[0]
	if ans.Record.State == dedup.StateSucceeded && ans.Record.Age >= e.lag {
		return false, "maybe"
	}
	return true, ""
}

// The composition is a Store like any other: what is proven of those holds of it, with a
// filter that lets it skip whatever it may skip.
func TestLayeredKeepsTheContract(t *testing.T) {
	const lease = 20 * time.Millisecond
	deduptest.Run(t, deduptest.Harness{Lease: lease, WalkSteps: 100, New: func(t testing.TB) dedup.Store {
		records := dedup.Memory(1 << 16)
		store, err := dedup.NewLayered(records, dedup.Config{
			Leases: dedup.Memory(1 << 16), HotWindow: time.Hour, LeaseTTL: lease,
			Filter: &exact{store: records},
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}})
}
