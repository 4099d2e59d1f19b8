package coalesce

import (
	"sync/atomic"
	"time"
)

// Call is a question with its answer. While it is in Do it belongs to the coalescer.
type Call[T any] struct {
	ID [16]byte // ID of what is asked for.
	Of T        // Of is the question, and then its answer.

	urgent bool
	self   [1]*Call[T]   // for a call that is sent alone
	ready  chan struct{} // of one slot, so that a sender never waits for a caller
	state  atomic.Uint32
	until  time.Time // a sender gives the call up if it was not sent by then; zero for never

	// Written by the sender before it makes the state callAnswered.
	broke *Panic
	late  bool // given up

	next, prev *Call[T] // in the queue
}

// A call leaves callQueued under the coalescer's mutex. Then sender and caller race for one step.
// If the sender wins, the call is callAnswered, and ready gets its value. If the caller wins, it is
// callAbandoned, and nobody waits. Once ready has a value the sender does not touch the call.
const (
	callQueued uint32 = iota
	callSent
	callAnswered
	callAbandoned
)

// answer wakes the caller, and reports false when it has gone.
func (t *Call[T]) answer() bool {
	if !t.state.CompareAndSwap(callSent, callAnswered) {
		return false
	}
	t.ready <- struct{}{}
	return true
}

// queue is a list of calls. Leaving it costs the same wherever a call stands: when a
// store hangs, all who wait leave at about the same time.
type queue[T any] struct {
	first, last *Call[T]
	n           int
}

func (q *queue[T]) push(t *Call[T]) {
	t.prev, t.next = q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	q.n++
}

func (q *queue[T]) remove(t *Call[T]) {
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	q.n--
}
