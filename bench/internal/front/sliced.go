package front

import (
	"sync"

	peer "github.com/bits-and-blooms/bloom/v3"

	"github.com/onceward/onceward/bloom"
)

// slicedBloom is what package bloom would be on top of bits-and-blooms: as many generations, each as
// large as its goal needs and behind a lock for reading. It lacks the keyed hash, coverage and the
// counters, so it is the least that such a filter would cost.
type slicedBloom struct{ gens []*lockedSlice }

type lockedSlice struct {
	mu sync.RWMutex
	f  *peer.BloomFilter
}

func newSlicedBloom(p bloom.Plan) *slicedBloom {
	s := &slicedBloom{gens: make([]*lockedSlice, p.Generations)}
	for i := range s.gens {
		s.gens[i] = &lockedSlice{f: peer.NewWithEstimates(uint(p.SliceKeys), goal/float64(p.Generations))}
	}
	return s
}

// fill does what the function fill does.
func (s *slicedBloom) fill(p bloom.Plan) {
	all := uint64(p.Generations)
	for n := range p.SliceKeys * all {
		s.gens[n%all].add(id(n))
	}
}

func (s *slicedBloom) has(id [16]byte) bool {
	for _, g := range s.gens {
		if g.has(id) {
			return true
		}
	}
	return false
}

func (g *lockedSlice) add(id [16]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.f.Add(id[:])
}

func (g *lockedSlice) has(id [16]byte) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.f.Test(id[:])
}
