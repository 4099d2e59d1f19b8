package redisadapter

import (
	"math/bits"
	"sync"

	"github.com/onceward/onceward/dedup"
)

// slabs keep arrays of exchanges that are over for the next ones.
type slabs[T any] struct{ pool sync.Pool }

// slabKept bounds the items of an array that is kept.
const slabKept = 4096

// get returns n zero items.
func (p *slabs[T]) get(n int) []T {
	if s, _ := p.pool.Get().(*[]T); s != nil && cap(*s) >= n {
		return (*s)[:n]
	}
	// there is room for batches that differ a little
	return make([]T, n, 1<<bits.Len(uint(max(n-1, 0))))
}

// put gives back what get returned, or more of it, when nobody refers to its items.
func (p *slabs[T]) put(s []T) {
	if cap(s) == 0 || cap(s) > slabKept {
		return
	}
	clear(s)
	p.pool.Put(&s)
}

var (
	stepSlabs   slabs[step]
	answerSlabs slabs[dedup.Answer]
)

// newAnswers returns n zero answers, and nil for none.
func newAnswers(n int) []dedup.Answer {
	if n == 0 {
		return nil
	}
	return answerSlabs.get(n)
}

// Recycle takes answers back that a method has returned: they may not be looked at any
// more. A [dedup.Deduper] calls it; others may, and need not.
func (s *Store) Recycle(answers []dedup.Answer) { answerSlabs.put(answers) }
