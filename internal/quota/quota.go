// Package quota bounds how many places each name may hold at a time, in one process.
package quota

import "sync"

// Quota counts the places that are taken, by name. The nil Quota bounds nothing. It keeps
// nothing of a name that holds no place, and is safe for concurrent use.
type Quota struct {
	most int

	mu   sync.Mutex
	held map[string]int
}

// New returns a Quota with most places for each name. It is nil when most is not positive.
func New(most int) *Quota {
	if most <= 0 {
		return nil
	}
	return &Quota{most: most, held: map[string]int{}}
}

// Enter takes a place, or reports false if the name already holds all that it may. One Leave gives
// back each place that was taken.
func (q *Quota) Enter(name string) bool {
	if q == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[name] >= q.most {
		return false
	}
	q.held[name]++
	return true
}

// Leave gives a place back.
func (q *Quota) Leave(name string) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[name]--; q.held[name] <= 0 {
		delete(q.held, name)
	}
}
