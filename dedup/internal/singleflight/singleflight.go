// Package singleflight lets concurrent calls of one key share one attempt.
package singleflight

import (
	"sync"
	"sync/atomic"
)

// Group holds the attempts under way. The result of each attempt is a T. The zero Group is ready,
// and safe for concurrent use.
type Group[T any] struct{ parts [16]part[T] }

// part has the attempts that one lock guards. Keys are digests, so any of their bytes can choose
// the part.
type part[T any] struct {
	mu sync.Mutex
	by map[[16]byte]*Flight[T]
	n  atomic.Int64 // len(by): most ends find no attempt, and take no lock for it
	_  [4]uint64    // parts have cache lines of their own
}

func (g *Group[T]) of(id [16]byte) *part[T] { return &g.parts[id[0]%16] }

// Flight is one attempt under way.
type Flight[T any] struct {
	done   chan struct{} // nil until somebody follows; guarded by the part's mutex
	result T             // set before done is closed
}

// Join returns the attempt under way, or starts own, which the caller must end.
func (g *Group[T]) Join(id [16]byte, own *Flight[T]) (f *Flight[T], lead bool) {
	p := g.of(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.by[id]; ok {
		if f.done == nil {
			f.done = make(chan struct{})
		}
		return f, false
	}
	if p.by == nil {
		p.by = make(map[[16]byte]*Flight[T])
	}
	p.by[id] = own
	p.n.Store(int64(len(p.by)))
	return own, true
}

// End ends an attempt, and reports whether others follow it: they wait for Publish.
func (g *Group[T]) End(id [16]byte, f *Flight[T]) (followed bool) {
	p := g.of(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[id] == f {
		p.drop(id)
	}
	return f.done != nil
}

// Leave makes calls that begin from now on start an attempt of their own. The attempt under way may
// have been answered before a change that the caller has just made. An attempt that begins after
// Leave asks after that change.
func (g *Group[T]) Leave(id [16]byte) {
	p := g.of(id)
	if p.n.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(id)
}

// drop needs the mutex.
func (p *part[T]) drop(id [16]byte) {
	delete(p.by, id)
	p.n.Store(int64(len(p.by)))
}

// Publish gives the result to those who follow an attempt that has ended.
func (f *Flight[T]) Publish(result T) {
	f.result = result
	close(f.done)
}

// Done is closed when there is a Result. It is for those who follow.
func (f *Flight[T]) Done() <-chan struct{} { return f.done }

// Result of the attempt, when it is Done.
func (f *Flight[T]) Result() T { return f.result }
