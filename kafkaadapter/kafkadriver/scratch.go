package kafkadriver

import (
	"sync"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// scratch has the arrays of one exchange with the store. Nobody keeps them: the Deduper copies what
// it may have to send again after it has answered.
type scratch struct {
	requests  []dedup.Request
	ends      []dedup.Completion
	tasks     []task
	decisions []pipeline.Decision
	done      []*item
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch {
	return scratches.Get().(*scratch) //nolint:errcheck,forcetypeassert // the pool has nothing else
}

func (s *scratch) free() {
	clear(s.requests)
	clear(s.ends)
	clear(s.tasks)
	clear(s.decisions)
	clear(s.done)
	s.requests, s.ends = s.requests[:0], s.ends[:0]
	s.tasks, s.decisions, s.done = s.tasks[:0], s.decisions[:0], s.done[:0]
	scratches.Put(s)
}
