// Package slab keeps the arrays of past batches for the next ones.
package slab

import (
	"math/bits"
	"sync"
)

// mostKept bounds the items of an array that is kept.
const mostKept = 1 << 10

// Pool keeps arrays of one type. The zero value is ready,
// and safe for concurrent use.
type Pool[T any] struct{ pool sync.Pool }

// Get returns n zero items.
func (p *Pool[T]) Get(n int) []T {
	if s, _ := p.pool.Get().(*[]T); s != nil && cap(*s) >= n {
		return (*s)[:n]
	}
	// there is room for batches that differ a little
	return make([]T, n, 1<<bits.Len(uint(max(n-1, 0))))
}

// Put gives back what Get returned, when nobody refers to its items any more.
func (p *Pool[T]) Put(s []T) {
	if cap(s) > mostKept {
		return
	}
	clear(s)
	p.pool.Put(&s)
}
