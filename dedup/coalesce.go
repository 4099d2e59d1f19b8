package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// coalescer makes batches of single calls from many goroutines: a group commit.
//
// While few calls are under way each is sent by itself on its caller's goroutine. In a
// crowd calls queue up, and sender goroutines, which exist only while there is something
// to send, take what has gathered; see send.go. A call that finds the crowd full is
// refused with errCrowded.
//
// Canceling one caller never disturbs the others: a batch runs under a deadline of its
// own, and the answers nobody waits for any more go to orphans.
type coalescer[R any] struct {
	send    func(context.Context, []R) []Answer
	id      func(R) ID
	orphans func([]R, []Answer) // may be nil; must not block
	shares  bool                // calls of one ID may get one answer; not with orphans
	timeout time.Duration
	life    *drain.Group
	crowd   *crowd

	tickets sync.Pool
	slabs   slab.Pool[R]
	recycle func([]Answer) // what has been read; may be nil

	mu      sync.Mutex
	queue   queue[R]
	senders int
	sent    int // calls in batches under way
	// gathering: a sender is about to take what is in the queue. While it is, no other
	// is started. Whenever the queue is not empty, a sender gathers, or one is under way
	// that will gather when its batch is answered.
	gathering bool
	trip      trip
}

// abandonedError is the answer to a call whose caller has gone, which is not the store's fault.
type abandonedError struct {
	cause error
	// queued: it had not been sent. Otherwise the store may be executing it, and what
	// it answers goes to orphans.
	queued bool
}

func (e *abandonedError) Error() string { return e.cause.Error() }
func (e *abandonedError) Unwrap() error { return e.cause }

// gone is the error of a ctx that has ended: what ctx.Err says, for those who test for
// it, and the cause if it has one of its own.
func gone(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// do sends req, alone or in some batch, and waits for its answer or for ctx.
func (c *coalescer[R]) do(ctx context.Context, req R) Answer { return c.doOne(ctx, []R{req}) }

// doOne is do for a request that lies where the store may keep it, and does not change any
// more.
//
// While few calls are under way it sends the call by itself, on its caller's goroutine: a
// batch of so few calls saves less than a goroutine costs. The call is then its caller's
// alone, so it ends with ctx. The store's contract says that it then returns at once.
func (c *coalescer[R]) doOne(ctx context.Context, req []R) Answer {
	if ctx.Err() != nil {
		return Answer{Err: &abandonedError{gone(ctx), true}}
	}
	n := c.crowd.enter()
	defer c.crowd.leave()
	switch {
	case n > c.crowd.limit:
		return Answer{Err: errCrowded}
	case n >= crowdBegins:
		return c.await(ctx, c.enqueue(&req[0]))
	}
	// the store may keep it
	within := &callContext{Context: ctx, deadline: time.Now().Add(c.timeout)}
	defer within.end()
	answers := c.send(within, req)
	if len(answers) != 1 {
		answers = answered(answers, 1)
	}
	if err := answers[0].Err; err != nil && ctx.Err() != nil && contextual(err) {
		if c.orphans != nil {
			c.orphans(req, answers)
		}
		return Answer{Err: &abandonedError{gone(ctx), false}}
	}
	return answers[0]
}

// contextual reports whether err comes from a context that ended.
func contextual(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// enqueue makes sure that some sender will take req.
func (c *coalescer[R]) enqueue(req *R) *ticket[R] {
	t, ok := c.tickets.Get().(*ticket[R])
	if !ok {
		t = &ticket[R]{ready: make(chan struct{}, 1)}
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
func (c *coalescer[R]) await(ctx context.Context, t *ticket[R]) Answer {
	select {
	case <-t.ready:
	case <-ctx.Done():
		if queued, left := c.abandon(t); left {
			return Answer{Err: &abandonedError{gone(ctx), queued}}
		}
		<-t.ready // the answer arrived in between: it counts
	}
	ans, broke := t.answer, t.broke
	*t = ticket[R]{ready: t.ready}
	c.tickets.Put(t)
	if broke != nil {
		panic(broke)
	}
	return ans
}

// abandon takes a canceled call out of the queue, or, when it has been sent, leaves its
// answer to orphans. It reports false when the call has been answered already.
func (c *coalescer[R]) abandon(t *ticket[R]) (queued, left bool) {
	c.mu.Lock()
	if t.state.Load() == ticketQueued {
		c.queue.remove(t)
		c.mu.Unlock()
		return true, true
	}
	c.mu.Unlock()
	return false, t.state.CompareAndSwap(ticketSent, ticketAbandoned)
}

// answered makes a store that breaks its contract harmless: missing answers are
// Unknown.
func answered(answers []Answer, want int) []Answer {
	if len(answers) == want {
		return answers
	}
	return repeat(Answer{Err: fmt.Errorf("%w: store gave %d answers for %d items", ErrUnknown,
		len(answers), want)}, want)
}

// repeat answers n items alike.
func repeat(ans Answer, n int) []Answer { return slices.Repeat([]Answer{ans}, n) }
