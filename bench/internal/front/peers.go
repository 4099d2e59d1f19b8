package front

import (
	"sync"

	peer "github.com/bits-and-blooms/bloom/v3"
)

// lockedBloom is what articles show: one filter for all time, behind a mutex. It forgets nothing, and
// knows nothing of what it was not told.
type lockedBloom struct {
	mu sync.Mutex
	f  *peer.BloomFilter
}

func newLockedBloom(keys int) *lockedBloom {
	return &lockedBloom{f: peer.NewWithEstimates(uint(keys), goal)}
}

func (l *lockedBloom) add(id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Add(id[:])
}

func (l *lockedBloom) has(id [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Test(id[:])
}

// goal is the rate of false positives that all are planned for, where nothing else is said.
const goal = 1e-3

// lockedMap is exact.
type lockedMap struct {
	mu sync.Mutex
	m  map[[16]byte]struct{}
}

func newLockedMap() *lockedMap { return &lockedMap{m: make(map[[16]byte]struct{})} }

func (l *lockedMap) add(id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[id] = struct{}{}
}

func (l *lockedMap) has(id [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.m[id]
	return ok
}
