package coalesce

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup/internal/lazyctx"
)

const (
	// batchSize is where Redis's throughput per batch stops growing.
	batchSize = 256
	// takeLooks bounds how many waiting calls are looked at for one batch: thousands may
	// ask for one ID, of which a batch takes one.
	takeLooks = 4 * batchSize
)

// room reports whether one more batch may be under way. Each has to carry its share of
// the calls, or many calls next to their store would fall apart into batches of one. The
// mutex is held.
func (c *Coalescer[R, A]) room() bool {
	if c.senders == 0 {
		return true
	}
	return c.senders < c.rtt.sends() && c.queue.n >= c.share()
}

// share is how many calls have to wait before one more batch is sent while others are under
// way. The mutex is held.
func (c *Coalescer[R, A]) share() int {
	sends := c.rtt.sends()
	share := (c.queue.n + c.sent) / sends
	if sends == minSends {
		share = max(share, nearShare)
	}
	return min(share, batchSize)
}

// start starts a sender. The mutex is held.
func (c *Coalescer[R, A]) start() {
	c.senders++
	c.gathering = true
	c.Life.Begin()
	go c.run()
}

// run sends batches as long as callers gather.
func (c *Coalescer[R, A]) run() {
	defer c.Life.End()
	var b batch[R, A]
	for {
		// Callers that were just woken, or come with the one that started us, get to
		// queue up: with 16 callers that yield doubles the throughput.
		runtime.Gosched()
		if !c.take(&b) {
			return
		}
		c.sendBatch(&b)
		if !c.gather(b.calls()) {
			return
		}
	}
}

// gather makes a sender whose batch is answered the one that takes next, or ends it when
// another one does.
func (c *Coalescer[R, A]) gather(answered int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent -= answered
	if c.gathering {
		c.senders--
		return false
	}
	c.gathering = true
	return true
}

// batch is what one sender has under way.
type batch[R, A any] struct {
	tickets []*ticket[R, A]
	shared  []*ticket[R, A]  // that get the answer of an earlier one
	of      []int            // which that is, for each of shared
	seen    map[[16]byte]int // index of tickets
}

func (b *batch[R, A]) calls() int { return len(b.tickets) + len(b.shared) }

// take moves the next batch out of the queue. It ends the sender when there is nothing to
// send, or too little while other senders are under way, which look again when they are back.
// A store wants every ID once per call, so a second ticket of an ID waits for the next
// batch, or gets the same answer where calls may share one.
func (c *Coalescer[R, A]) take(b *batch[R, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathering = false
	if c.queue.n == 0 || c.senders > 1 && c.queue.n < c.share() {
		c.senders--
		return false
	}
	b.begin(c.queue.n)
	next := c.queue.first
	for range takeLooks {
		t := next
		if t == nil || len(b.tickets) == batchSize {
			break
		}
		next = t.next
		id := c.ID(&t.req)
		first, twice := b.seen[id]
		switch {
		case !twice:
			b.seen[id] = len(b.tickets)
			b.tickets = append(b.tickets, t)
		case c.Shares:
			b.shared, b.of = append(b.shared, t), append(b.of, first)
		default:
			continue
		}
		c.queue.remove(t)
		t.state.Store(ticketSent)
	}
	c.sent += b.calls()
	if c.queue.n > 0 && c.room() {
		c.start()
	}
	return true
}

func (b *batch[R, A]) begin(waiting int) {
	if b.seen == nil {
		b.seen = make(map[[16]byte]int, min(waiting, batchSize))
	}
	clear(b.seen)
	clear(b.tickets)
	clear(b.shared)
	b.tickets, b.shared, b.of = b.tickets[:0], b.shared[:0], b.of[:0]
}

// sendBatch sends the batch, notes how long that took, and gives out the answers. A
// store that panics does so in the first caller that still waits, as if it had made the
// call itself; the others learn nothing.
func (c *Coalescer[R, A]) sendBatch(b *batch[R, A]) {
	reqs := c.slabs.Get(len(b.tickets))
	for i, t := range b.tickets {
		reqs[i] = t.req
	}
	start := time.Now()
	answers, broke := c.call(reqs)
	took := time.Since(start)
	c.mu.Lock()
	c.rtt.note(took, len(reqs))
	c.mu.Unlock()
	learnt := c.learnt(answers)
	c.deliver(b, reqs, answers, broke)
	if learnt { // else the store may be at work on them still
		c.slabs.Put(reqs)
		if c.Recycle != nil {
			c.Recycle(answers)
		}
	}
}

// learnt reports whether the store has answered all.
func (c *Coalescer[R, A]) learnt(answers []A) bool {
	for i := range answers {
		if c.Err(&answers[i]) != nil {
			return false
		}
	}
	return true
}

// call is one call of the store, under a deadline of its own.
func (c *Coalescer[R, A]) call(reqs []R) (answers []A, broke *Panic) {
	ctx := lazyctx.WithTimeout(context.Background(), c.Timeout)
	defer ctx.End(context.Canceled)
	defer func() {
		if v := recover(); v != nil {
			broke = NewPanic(v)
			answers = c.failed(fmt.Errorf("store panicked: %v", v), len(reqs))
		}
	}()
	return c.answered(c.Send(ctx, reqs), len(reqs)), nil
}

// deliver gives every caller its answer, and gives those of callers that left to Abandoned.
func (c *Coalescer[R, A]) deliver(b *batch[R, A], reqs []R, answers []A, broke *Panic) {
	for n, t := range b.shared {
		t.answer = c.Clone(&answers[b.of[n]])
		if t.state.CompareAndSwap(ticketSent, ticketAnswered) {
			t.ready <- struct{}{}
		}
	}
	var left []R
	var unheard []A
	for i, t := range b.tickets {
		t.answer, t.broke = answers[i], broke
		if !t.state.CompareAndSwap(ticketSent, ticketAnswered) {
			left, unheard = append(left, reqs[i]), append(unheard, answers[i])
			continue
		}
		broke = nil
		t.ready <- struct{}{}
	}
	if c.Abandoned != nil && len(left) > 0 {
		c.Abandoned(left, unheard)
	}
	if broke != nil {
		panic(broke) // nobody is left to whom it could go
	}
}

// Panic is what a store panicked with in a goroutine of ours, on its way to a caller.
type Panic struct {
	value any
	stack []byte
}

// NewPanic keeps what was recovered, with the stack.
func NewPanic(value any) *Panic { return &Panic{value, debug.Stack()} }

// Error implements error.
func (p *Panic) Error() string {
	return fmt.Sprintf("dedup: store panicked: %v\n\n%s", p.value, p.stack)
}

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
