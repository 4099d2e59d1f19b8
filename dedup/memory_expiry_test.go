package dedup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

// memoryCheckHeap fails unless the heap is in order and agrees with the map.
func memoryCheckHeap(t *testing.T, s *memoryStore, step int) {
	t.Helper()
	require.Len(t, s.expiry, len(s.records), "step %d", step)
	broken := "" // one assertion a step: there are many entries
	for i, e := range s.expiry {
		switch {
		case e.rec.slot != i:
			broken = fmt.Sprintf("the record of entry %d says %d", i, e.rec.slot)
		case s.records[e.rec.id] != e.rec:
			broken = fmt.Sprintf("entry %d is of a record that is not kept", i)
		case e.at > e.rec.expires:
			broken = fmt.Sprintf("entry %d comes at %v, its record expires at %v", i, e.at,
				e.rec.expires)
		case i > 0 && s.expiry[(i-1)/2].at > e.at:
			broken = fmt.Sprintf("entry %d is before its parent", i)
		}
	}
	require.Empty(t, broken, "step %d", step)
}

// Records are created, live longer, live shorter, are found expired and are removed in random
// order, and the heap is in order after each of them. An entry that is later than its record would
// keep a place forever in a full store.
func TestMemoryHeapStaysInOrder(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &memoryStore{capacity: 64, records: map[driver.ID]*memoryRecord{}}
		now := time.Duration(0)
		for step := range 2000 {
			now += time.Duration(rng.IntN(4))
			id := driver.ID{byte(rng.IntN(128))}
			rec := s.find(id, now)
			if rec == nil && rng.IntN(2) == 0 {
				rec = s.add(id, now)
			}
			if rec != nil {
				s.schedule(rec, now+time.Duration(rng.IntN(300)))
			}
			if rng.IntN(8) == 0 {
				s.purge(now, rng.IntN(4))
			}
			memoryCheckHeap(t, s, step)
		}
	}
}
