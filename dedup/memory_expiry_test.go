package dedup

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memoryCheckHeap fails unless the heap is in order and agrees with the map.
func memoryCheckHeap(t *testing.T, s *memoryStore, step int) {
	t.Helper()
	require.Len(t, s.expiry, len(s.records), "step %d", step)
	for i, e := range s.expiry {
		require.Equal(t, i, e.rec.slot, "step %d", step)
		require.Same(t, e.rec, s.records[e.rec.id], "step %d: entry %d", step, i)
		require.LessOrEqual(t, e.at, e.rec.expires, "step %d: entry %d", step, i)
		require.LessOrEqual(t, s.expiry[max(i-1, 0)/2].at, e.at,
			"step %d: its parent comes after entry %d", step, i)
	}
}

// Records come, live longer, live shorter, are found expired and are cleared up in
// random order, and the heap holds after each of them. An entry later than its record
// would keep a place forever in a store that is full.
func TestMemoryHeapStaysInOrder(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &memoryStore{capacity: 64, records: map[ID]*memoryRecord{}}
		now := time.Duration(0)
		for step := range 2000 {
			now += time.Duration(rng.IntN(4))
			id := ID{byte(rng.IntN(128))}
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
