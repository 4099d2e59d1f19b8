package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// coalesceBatch is where Redis's throughput per batch stops growing.
	coalesceBatch = 256
	// coalesceSends is how many batches may be under way at once. While fewer are,
	// a call is sent directly, so a lone caller never waits for company.
	coalesceSends = 8
)

// coalescer turns single calls from many goroutines into batches. A sender goroutine
// exists only while there is something to send.
//
// Cancelling one caller never disturbs the others of its batch: the batch runs under
// its own deadline, and the answers nobody waits for any more go to orphans.
type coalescer[R any] struct {
	send    func(context.Context, []R) []Answer
	id      func(R) ID
	orphans func([]R, []Answer) // may be nil; must not block
	timeout time.Duration
	life    *life

	mu      sync.Mutex
	queue   []*ticket[R]
	senders int
}

// ticket is one waiting call.
type ticket[R any] struct {
	req       R
	done      chan struct{}
	answer    Answer
	abandoned bool // guarded by coalescer.mu
}

// abandonedError is the answer to a call whose caller has gone: no fault of the store.
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

// do sends req in some batch and waits for its answer or for ctx.
func (c *coalescer[R]) do(ctx context.Context, req R) Answer {
	if ctx.Err() != nil {
		return Answer{Err: &abandonedError{gone(ctx), true}}
	}
	t := &ticket[R]{req: req, done: make(chan struct{})}
	c.mu.Lock()
	c.queue = append(c.queue, t)
	if c.senders < coalesceSends {
		c.senders++
		c.life.begin()
		go c.run()
	}
	c.mu.Unlock()

	select {
	case <-t.done:
		return t.answer
	case <-ctx.Done():
		return c.abandon(ctx, t)
	}
}

// abandon takes a cancelled call out of the queue, or, when it has been sent, leaves
// its answer to orphans. The answer may have arrived in between: then it counts.
func (c *coalescer[R]) abandon(ctx context.Context, t *ticket[R]) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-t.done:
		return t.answer
	default:
	}
	if i := slices.Index(c.queue, t); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
		return Answer{Err: &abandonedError{gone(ctx), true}}
	}
	t.abandoned = true
	return Answer{Err: &abandonedError{gone(ctx), false}}
}

// run sends batches until the queue is empty.
func (c *coalescer[R]) run() {
	defer c.life.end()
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		c.sendBatch(batch)
	}
}

// take removes the next batch from the queue, or ends the sender. A store wants every
// ID once per call, so a second ticket of an ID waits for the next batch.
func (c *coalescer[R]) take() []*ticket[R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.queue = nil
		c.senders--
		return nil
	}
	batch := make([]*ticket[R], 0, min(len(c.queue), coalesceBatch))
	seen := make(map[ID]struct{}, cap(batch))
	rest := c.queue[:0:0]
	for i, t := range c.queue {
		if len(batch) == coalesceBatch {
			rest = append(rest, c.queue[i:]...)
			break
		}
		id := c.id(t.req)
		if _, twice := seen[id]; twice {
			rest = append(rest, t)
			continue
		}
		seen[id] = struct{}{}
		batch = append(batch, t)
	}
	c.queue = rest
	return batch
}

func (c *coalescer[R]) sendBatch(batch []*ticket[R]) {
	reqs := make([]R, len(batch))
	for i, t := range batch {
		reqs[i] = t.req
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	answers := answered(c.send(ctx, reqs), len(reqs))
	cancel()

	var left []R
	var unheard []Answer
	c.mu.Lock()
	for i, t := range batch {
		t.answer = answers[i]
		if t.abandoned {
			left, unheard = append(left, reqs[i]), append(unheard, answers[i])
		}
		close(t.done)
	}
	c.mu.Unlock()
	if c.orphans != nil && len(left) > 0 {
		c.orphans(left, unheard)
	}
}

// answered makes a store that breaks its contract harmless: missing answers are
// Unknown.
func answered(answers []Answer, want int) []Answer {
	if len(answers) == want {
		return answers
	}
	return repeat(Answer{Err: fmt.Errorf("%w: store gave %d answers for %d items", ErrUnknown, len(answers), want)}, want)
}

// repeat answers n items alike.
func repeat(ans Answer, n int) []Answer { return slices.Repeat([]Answer{ans}, n) }
