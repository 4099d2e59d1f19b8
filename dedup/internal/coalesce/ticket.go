package coalesce

import "sync/atomic"

// ticket is one call that waits for a batch. Its caller owns it again once ready has a
// value; from then on the sender does not touch it.
type ticket[R, A any] struct {
	req   R
	ready chan struct{} // of one slot, so that a sender never waits for a caller
	state atomic.Uint32

	// Written by the sender before it makes the state ticketAnswered.
	answer A
	broke  *Panic

	next, prev *ticket[R, A] // in the queue
}

// A ticket leaves ticketQueued under the coalescer's mutex. Then sender and caller race
// for one step: to ticketAnswered, and ready gets its value, or to ticketAbandoned, and
// nobody waits any more.
const (
	ticketQueued uint32 = iota
	ticketSent
	ticketAnswered
	ticketAbandoned
)

// queue is a list of tickets. Leaving it costs the same wherever a ticket stands: when a
// store hangs, all who wait leave at about the same time.
type queue[R, A any] struct {
	first, last *ticket[R, A]
	n           int
}

func (q *queue[R, A]) push(t *ticket[R, A]) {
	t.prev, t.next = q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	q.n++
}

func (q *queue[R, A]) remove(t *ticket[R, A]) {
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
