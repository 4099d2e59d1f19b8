// Package singleflight lets concurrent calls of one key share one attempt.
package singleflight

import (
	"sync"
	"sync/atomic"
)

// Group has the attempts under way, each of which ends with a T. The zero Group is ready, and
// safe for concurrent use.
type Group[T any] struct {
	mu sync.Mutex
	by map[[16]byte]*Flight[T]
	n  atomic.Int64 // len(by): most ends find no attempt, and take no lock for it
}

// Flight is one attempt under way.
type Flight[T any] struct {
	done   chan struct{} // nil until somebody follows; guarded by Group.mu
	result T             // set before done is closed
}

// Join returns the attempt under way, or starts one that the caller must end.
func (g *Group[T]) Join(id [16]byte) (f *Flight[T], lead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f, ok := g.by[id]; ok {
		if f.done == nil {
			f.done = make(chan struct{})
		}
		return f, false
	}
	if g.by == nil {
		g.by = make(map[[16]byte]*Flight[T])
	}
	f = new(Flight[T])
	g.by[id] = f
	g.n.Store(int64(len(g.by)))
	return f, true
}

// End ends an attempt, and reports whether others follow it: they wait for Publish.
func (g *Group[T]) End(id [16]byte, f *Flight[T]) (followed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by[id] == f {
		g.drop(id)
	}
	return f.done != nil
}

// Leave makes calls that begin from now on start an attempt of their own. The one under way
// may have been answered before a change that the caller has just made. An attempt that begins
// after Leave asks after that change.
func (g *Group[T]) Leave(id [16]byte) {
	if g.n.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(id)
}

// drop needs the mutex.
func (g *Group[T]) drop(id [16]byte) {
	delete(g.by, id)
	g.n.Store(int64(len(g.by)))
}

// Publish gives the result to those who follow an attempt that has ended.
func (f *Flight[T]) Publish(result T) {
	f.result = result
	close(f.done)
}

// Done is closed when there is a Result. It is for those who follow.
func (f *Flight[T]) Done() <-chan struct{} { return f.done }

// Result of the attempt, when it is Done.
func (f *Flight[T]) Result() *T { return &f.result }
