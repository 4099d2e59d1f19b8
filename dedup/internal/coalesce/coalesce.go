// Package coalesce makes batches of single calls from many goroutines, and knows nothing of what
// they ask for.
package coalesce

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/onceward/onceward/dedup/internal/lazyctx"
)

// Coalescer makes batches of single calls from many goroutines: a group commit. T is a question
// with its answer. The exported fields are set before its first use.
//
// While few calls are under way, each caller sends its own call on its own goroutine. When there
// are many, calls queue up, and sender goroutines take the queued calls; see send.go. Senders exist
// only while there is something to send. A call beyond the limit is refused with [ErrFull].
//
// Canceling one caller never disturbs the others: a batch runs under a deadline of its
// own, and the answers that nobody waits for any more go to Abandoned.
type Coalescer[T any] struct {
	// Send asks the store and writes an answer into each call, the urgent ones first. No ID comes
	// twice. It returns when its context ends.
	Send func(context.Context, []*Call[T])
	// Fail writes an error into a call that has no answer from the store.
	Fail func(*T, error)
	// Err returns the error of an answer.
	Err func(*T) error
	// Share writes the answer of one call into another of the same ID. Nil says that calls of one
	// ID get an answer each. It excludes Abandoned.
	Share func(to, from *T)
	// Abandoned gets what was sent for callers that have gone. It may be nil, and must not
	// block.
	Abandoned func([]*Call[T])
	// Timeout bounds a call of Send.
	Timeout time.Duration
	// Life counts the senders.
	Life *drain.Group
	// Limiter counts the calls, also those of other coalescers.
	Limiter *Limiter

	calls sync.Pool

	mu      sync.Mutex
	urgent  queue[T]
	queue   queue[T]
	senders int
	sent    int // calls in batches under way
	// gathering is true while a sender is about to take calls from the queues. No other sender is
	// started then. Whenever a queue is not empty, a sender gathers, or a batch is under way whose
	// sender will gather when the answers are there.
	gathering bool
	rtt       rttEstimator
}

// AbandonedError says that a call has no answer because its caller has gone, which is not the
// store's fault.
type AbandonedError struct {
	cause error
	// Queued says that the call had not been sent. Otherwise the store may be executing it, and
	// what it answers goes to Abandoned.
	Queued bool
}

// Abandon returns the error of a call whose ctx has ended.
func Abandon(ctx context.Context, queued bool) *AbandonedError {
	return &AbandonedError{ctxend.Error(ctx), queued}
}

// Error implements error.
func (e *AbandonedError) Error() string { return e.cause.Error() }

// Unwrap returns how the context ended.
func (e *AbandonedError) Unwrap() error { return e.cause }

// New returns a call. The caller passes it to Do, and then to Done.
func (c *Coalescer[T]) New(id [16]byte, urgent bool) *Call[T] {
	call, ok := c.calls.Get().(*Call[T])
	if !ok {
		call = &Call[T]{ready: make(chan struct{}, 1)}
		call.self[0] = call
	}
	call.ID, call.urgent = id, urgent
	return call
}

// Done takes back a call that Do has answered with nil.
func (c *Coalescer[T]) Done(call *Call[T]) {
	*call = Call[T]{ready: call.ready, self: call.self}
	c.calls.Put(call)
}

// Do sends call, alone or in some batch, and waits for its answer or for ctx. After an error there
// is no answer, and the caller must not use the call any more. If the store panics, one caller gets
// the panic.
//
// While few calls are under way it sends the call by itself, on its caller's goroutine: a
// batch of so few calls saves less than a goroutine costs. The call is then its caller's
// alone, so it ends with ctx. The store's contract says that it then returns at once.
func (c *Coalescer[T]) Do(ctx context.Context, call *Call[T]) error {
	if ctx.Err() != nil {
		return Abandon(ctx, true)
	}
	n := c.Limiter.enter()
	defer c.Limiter.leave()
	switch {
	case n > c.Limiter.Limit:
		return ErrFull
	case n >= batchesFrom:
		return c.await(ctx, call)
	}
	// the store may keep it
	within := lazyctx.WithTimeout(ctx, c.Timeout)
	defer within.End(context.Canceled)
	c.Send(within, call.self[:])
	if err := c.Err(&call.Of); err != nil && ctx.Err() != nil && ctxend.Is(err) {
		if c.Abandoned != nil {
			c.Abandoned(call.self[:])
		}
		return Abandon(ctx, false)
	}
	return nil
}

// await puts call into a queue and waits for its answer, or for ctx. The senders watch the call's
// deadline, so the caller needs no timer for it, and may return up to Timeout after it.
func (c *Coalescer[T]) await(ctx context.Context, call *Call[T]) error {
	var gone <-chan struct{}
	gone, call.until = lazyctx.Ends(ctx)
	c.enqueue(call)
	if gone == nil { // a select costs more
		<-call.ready
	} else if left, queued := c.wait(call, gone); left {
		return Abandon(ctx, queued)
	}
	switch {
	case call.broke != nil:
		panic(call.broke)
	case call.late:
		return &AbandonedError{context.DeadlineExceeded, true}
	}
	return nil
}

// enqueue makes sure that some sender will take call.
func (c *Coalescer[T]) enqueue(call *Call[T]) {
	call.state.Store(callQueued)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueOf(call).push(call)
	if !c.gathering && c.room() {
		c.start()
	}
}

func (c *Coalescer[T]) queueOf(call *Call[T]) *queue[T] {
	if call.urgent {
		return &c.urgent
	}
	return &c.queue
}

// waiting returns how many calls are queued. The mutex is held.
func (c *Coalescer[T]) waiting() int { return c.urgent.n + c.queue.n }

// wait waits for the answer of call, or until its caller has left. queued says that the call was
// still in the queue then. If the call was not in the queue, the sender may still hold the pointer.
func (c *Coalescer[T]) wait(call *Call[T], gone <-chan struct{}) (left, queued bool) {
	select {
	case <-call.ready:
		return false, false
	case <-gone:
	}
	c.mu.Lock()
	if call.state.Load() == callQueued {
		c.queueOf(call).remove(call)
		c.mu.Unlock()
		return true, true
	}
	c.mu.Unlock()
	if call.state.CompareAndSwap(callSent, callAbandoned) {
		return true, false
	}
	<-call.ready // the answer arrived in between: it counts
	return false, false
}
