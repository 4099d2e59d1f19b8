// Package coalesce makes batches of single calls from many goroutines, and knows nothing of what
// they ask for.
package coalesce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/onceward/onceward/dedup/internal/lazyctx"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// Coalescer makes batches of single calls from many goroutines: a group commit. R is what is
// asked, and A an answer. Its exported fields are set before its first use.
//
// While few calls are under way each is sent by itself on its caller's goroutine. When they
// are many, calls queue up, and sender goroutines, which exist only while there is something
// to send, take what has gathered; see send.go. A call beyond the limit is refused with
// [ErrFull].
//
// Canceling one caller never disturbs the others: a batch runs under a deadline of its
// own, and the answers that nobody waits for any more go to Abandoned.
type Coalescer[R, A any] struct {
	// Send asks the store. It returns one answer per request, and when its context ends.
	Send func(context.Context, []R) []A
	// ID of what a request asks for. A store wants every ID once per call.
	ID func(*R) [16]byte
	// Failed is the answer to a call that has none from the store, and why.
	Failed func(error) A
	// Err of an answer.
	Err func(*A) error
	// Clone is an answer for one more caller.
	Clone func(*A) A
	// Abandoned gets what was sent for callers that have gone. It may be nil, and must not
	// block.
	Abandoned func([]R, []A)
	// Shares says that calls of one ID may get one answer. It excludes Abandoned.
	Shares bool
	// Timeout bounds a call of Send.
	Timeout time.Duration
	// Life counts the senders.
	Life *drain.Group
	// Limiter counts the calls, also those of other coalescers.
	Limiter *Limiter
	// Recycle takes back answers that have been read. It may be nil.
	Recycle func([]A)

	tickets sync.Pool
	slabs   slab.Pool[R]

	mu      sync.Mutex
	queue   queue[R, A]
	senders int
	sent    int // calls in batches under way
	// gathering: a sender is about to take what is in the queue. While it is, no other
	// is started. Whenever the queue is not empty, a sender gathers, or one is under way
	// that will gather when its batch is answered.
	gathering bool
	rtt       rttEstimator
}

// AbandonedError is why a call has no answer whose caller has gone, which is not the store's
// fault.
type AbandonedError struct {
	cause error
	// Queued says that the call had not been sent. Otherwise the store may be executing it, and
	// what it answers goes to Abandoned.
	Queued bool
}

// Abandon is the error of a call whose ctx has ended.
func Abandon(ctx context.Context, queued bool) *AbandonedError {
	return &AbandonedError{ctxend.Error(ctx), queued}
}

// Error implements error.
func (e *AbandonedError) Error() string { return e.cause.Error() }

// Unwrap returns how the context ended.
func (e *AbandonedError) Unwrap() error { return e.cause }

// Do sends req, alone or in some batch, and waits for its answer or for ctx. A store that
// panics does so in one caller.
func (c *Coalescer[R, A]) Do(ctx context.Context, req R) A { return c.DoOne(ctx, []R{req}) }

// DoOne is Do for a request that lies where the store may keep it, and does not change any
// more.
//
// While few calls are under way it sends the call by itself, on its caller's goroutine: a
// batch of so few calls saves less than a goroutine costs. The call is then its caller's
// alone, so it ends with ctx. The store's contract says that it then returns at once.
func (c *Coalescer[R, A]) DoOne(ctx context.Context, req []R) A {
	if ctx.Err() != nil {
		return c.Failed(Abandon(ctx, true))
	}
	n := c.Limiter.enter()
	defer c.Limiter.leave()
	switch {
	case n > c.Limiter.Limit:
		return c.Failed(ErrFull)
	case n >= batchesFrom:
		return c.await(ctx, c.enqueue(&req[0]))
	}
	// the store may keep it
	within := lazyctx.WithTimeout(ctx, c.Timeout)
	defer within.End(context.Canceled)
	answers := c.Send(within, req)
	if len(answers) != 1 {
		answers = c.answered(answers, 1)
	}
	if err := c.Err(&answers[0]); err != nil && ctx.Err() != nil && ctxend.Is(err) {
		if c.Abandoned != nil {
			c.Abandoned(req, answers)
		}
		return c.Failed(Abandon(ctx, false))
	}
	return answers[0]
}

// enqueue makes sure that some sender will take req.
func (c *Coalescer[R, A]) enqueue(req *R) *ticket[R, A] {
	t, ok := c.tickets.Get().(*ticket[R, A])
	if !ok {
		t = &ticket[R, A]{ready: make(chan struct{}, 1)}
	}
	t.req = *req
	t.state.Store(ticketQueued)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.push(t)
	if !c.gathering && c.room() {
		c.start()
	}
	return t
}

// await waits for the answer to t, or for ctx. Only a ticket whose answer was waited for
// is used again: of an abandoned one the sender may still hold the pointer.
func (c *Coalescer[R, A]) await(ctx context.Context, t *ticket[R, A]) A {
	select {
	case <-t.ready:
	case <-ctx.Done():
		if queued, left := c.abandon(t); left {
			return c.Failed(Abandon(ctx, queued))
		}
		<-t.ready // the answer arrived in between: it counts
	}
	ans, broke := t.answer, t.broke
	*t = ticket[R, A]{ready: t.ready}
	c.tickets.Put(t)
	if broke != nil {
		panic(broke)
	}
	return ans
}

// abandon takes a canceled call out of the queue, or, when it has been sent, leaves its
// answer to Abandoned. It reports false when the call has been answered already.
func (c *Coalescer[R, A]) abandon(t *ticket[R, A]) (queued, left bool) {
	c.mu.Lock()
	if t.state.Load() == ticketQueued {
		c.queue.remove(t)
		c.mu.Unlock()
		return true, true
	}
	c.mu.Unlock()
	return false, t.state.CompareAndSwap(ticketSent, ticketAbandoned)
}

// answered makes a store that breaks its contract harmless: missing answers are failed.
func (c *Coalescer[R, A]) answered(answers []A, want int) []A {
	if len(answers) == want {
		return answers
	}
	return c.failed(fmt.Errorf("store gave %d answers for %d items", len(answers), want), want)
}

// failed answers n items with err.
func (c *Coalescer[R, A]) failed(err error, n int) []A {
	return slices.Repeat([]A{c.Failed(err)}, n)
}
