package work

import (
	"context"
	"sync"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// nullStore grants every claim and writes every end, but keeps nothing: with it, a benchmark
// measures what the Deduper itself costs. It reuses the slices of answers that its caller gives
// back to Recycle.
type nullStore struct {
	dedup.Store // nil: any other call panics

	mu    sync.Mutex
	slabs [][]driver.Answer
}

// Claim implements dedup.Store: it grants all.
func (s *nullStore) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := s.get(len(reqs))
	for i := range answers {
		answers[i] = driver.Answer{Outcome: dedup.Acquired, Record: dedup.Record{
			State: driver.StateInProgress, Attempt: 1, Fence: 1, Remaining: reqs[i].Lease,
		}}
	}
	return answers
}

// Renew implements dedup.Store.
func (s *nullStore) Renew(_ context.Context, renewals []driver.Renewal) []driver.Answer {
	return s.held(len(renewals))
}

// Finish implements dedup.Store: it writes all.
func (s *nullStore) Finish(_ context.Context, changes []driver.Finish) []driver.Answer {
	return s.held(len(changes))
}

func (s *nullStore) held(n int) []driver.Answer {
	answers := s.get(n)
	for i := range answers {
		answers[i] = driver.Answer{Held: true, Written: true}
	}
	return answers
}

// Recycle takes back a slice of answers.
func (s *nullStore) Recycle(answers []driver.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slabs = append(s.slabs, answers)
}

// get returns n answers with any content.
func (s *nullStore) get(n int) []driver.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.slabs) - 1; last >= 0 && cap(s.slabs[last]) >= n {
		slab := s.slabs[last]
		s.slabs = s.slabs[:last]
		return slab[:n]
	}
	return make([]driver.Answer, n)
}
