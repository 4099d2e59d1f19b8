package wire

import (
	"math/bits"
	"sync"
)

// Slabs keep the arrays of past exchanges for later ones.
type Slabs[T any] struct{ pool sync.Pool }

// slabKept bounds the items of an array that is kept.
const slabKept = 4096

// Get returns n zero items.
func (p *Slabs[T]) Get(n int) []T {
	if s, _ := p.pool.Get().(*[]T); s != nil && cap(*s) >= n {
		return (*s)[:n]
	}
	// there is room for batches that differ a little
	return make([]T, n, 1<<bits.Len(uint(max(n-1, 0))))
}

// Put gives back the slice that Get returned, perhaps grown, when nobody refers to its items.
func (p *Slabs[T]) Put(s []T) {
	if cap(s) == 0 || cap(s) > slabKept {
		return
	}
	clear(s)
	p.pool.Put(&s)
}
