package dedup

import (
	"context"
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
// its own deadline, and the answer nobody waits for any more goes to orphan.
type coalescer[R any] struct {
	send    func(context.Context, []R) []Answer
	id      func(R) ID
	orphan  func(R, Answer)
	timeout time.Duration

	mu      sync.Mutex
	queue   []*ticket[R]
	senders int
	idle    sync.Cond // signalled when senders falls to zero; L is &mu
}

// ticket is one waiting call.
type ticket[R any] struct {
	req       R
	done      chan struct{}
	answer    Answer
	abandoned bool // guarded by coalescer.mu
}

func newCoalescer[R any](timeout time.Duration, id func(R) ID, send func(context.Context, []R) []Answer) *coalescer[R] {
	c := &coalescer[R]{send: send, id: id, timeout: timeout}
	c.idle.L = &c.mu
	return c
}

// do sends req in some batch and waits for its answer or for ctx.
func (c *coalescer[R]) do(ctx context.Context, req R) Answer {
	if err := ctx.Err(); err != nil {
		return Answer{Err: context.Cause(ctx)}
	}
	t := &ticket[R]{req: req, done: make(chan struct{})}
	c.mu.Lock()
	c.queue = append(c.queue, t)
	if c.senders < coalesceSends {
		c.senders++
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
// its answer to orphan. The answer may have arrived in between: then it counts.
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
	}
	t.abandoned = true
	return Answer{Err: context.Cause(ctx)}
}

// run sends batches until the queue is empty.
func (c *coalescer[R]) run() {
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
		if c.senders == 0 {
			c.idle.Broadcast()
		}
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

	var orphans []int
	c.mu.Lock()
	for i, t := range batch {
		t.answer = answers[i]
		if t.abandoned {
			orphans = append(orphans, i)
		}
		close(t.done)
	}
	c.mu.Unlock()
	for _, i := range orphans {
		if c.orphan != nil {
			c.orphan(reqs[i], answers[i])
		}
	}
}

// wait returns when no batch is under way, orphans included.
func (c *coalescer[R]) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.senders > 0 {
		c.idle.Wait()
	}
}

// answered makes a store that breaks its contract harmless: missing answers are
// Unknown.
func answered(answers []Answer, want int) []Answer {
	if len(answers) == want {
		return answers
	}
	err := fmt.Errorf("%w: store gave %d answers for %d items", ErrUnknown, len(answers), want)
	broken := make([]Answer, want)
	for i := range broken {
		broken[i].Err = err
	}
	return broken
}
