package dedup

import (
	"math/bits"
	"sync"
)

// slabs keep arrays of batches that are over for the next ones. The zero value is ready,
// and safe for concurrent use.
type slabs[T any] struct{ pool sync.Pool }

// get returns n zero items.
func (p *slabs[T]) get(n int) []T {
	if s, _ := p.pool.Get().(*[]T); s != nil && cap(*s) >= n {
		return (*s)[:n]
	}
	// there is room for batches that differ a little
	return make([]T, n, 1<<bits.Len(uint(max(n-1, 0))))
}

// put gives back what get returned, when nobody refers to its items any more.
func (p *slabs[T]) put(s []T) {
	if cap(s) > storeBatch {
		return
	}
	clear(s)
	p.pool.Put(&s)
}

var (
	requestSlabs slabs[ClaimRequest]
	errorSlabs   slabs[error]
	indexSlabs   slabs[int]
	endingSlabs  slabs[ending]
	changeSlabs  slabs[Finish]
)
