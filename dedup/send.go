package dedup

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// coalesceBatch is where Redis's throughput per batch stops growing.
	coalesceBatch = 256
	// takeLooks bounds how many waiting calls are looked at for one batch: thousands may
	// ask for one ID, of which a batch takes one.
	takeLooks = 4 * coalesceBatch
)

// room reports whether one more batch may be under way. Each has to carry its share of
// the crowd, or a crowd next to its store would fall apart into batches of one. The
// mutex is held.
func (c *coalescer[R]) room() bool {
	if c.senders == 0 {
		return true
	}
	return c.senders < c.trip.sends() && c.queue.n >= c.share()
}

// share is how many calls have to wait before one more batch is sent while others are under
// way. The mutex is held.
func (c *coalescer[R]) share() int {
	sends := c.trip.sends()
	share := (c.queue.n + c.sent) / sends
	if sends == minSends {
		share = max(share, nearShare)
	}
	return min(share, coalesceBatch)
}

// start starts a sender. The mutex is held.
func (c *coalescer[R]) start() {
	c.senders++
	c.gathering = true
	c.life.Begin()
	go c.run()
}

// run sends batches as long as callers gather.
func (c *coalescer[R]) run() {
	defer c.life.End()
	var b batch[R]
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
func (c *coalescer[R]) gather(answered int) bool {
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
type batch[R any] struct {
	tickets []*ticket[R]
	shared  []*ticket[R] // that get the answer of an earlier one
	of      []int        // which that is, for each of shared
	seen    map[ID]int   // index of tickets
}

func (b *batch[R]) calls() int { return len(b.tickets) + len(b.shared) }

// take moves the next batch out of the queue. It ends the sender when there is nothing to
// send, or too little while other senders are under way, which look again when they are back.
// A store wants every ID once per call, so a second ticket of an ID waits for the next
// batch, or gets the same answer where calls may share one.
func (c *coalescer[R]) take(b *batch[R]) bool {
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
		if t == nil || len(b.tickets) == coalesceBatch {
			break
		}
		next = t.next
		id := c.id(t.req)
		first, twice := b.seen[id]
		switch {
		case !twice:
			b.seen[id] = len(b.tickets)
			b.tickets = append(b.tickets, t)
		case c.shares:
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

func (b *batch[R]) begin(waiting int) {
	if b.seen == nil {
		b.seen = make(map[ID]int, min(waiting, coalesceBatch))
	}
	clear(b.seen)
	clear(b.tickets)
	clear(b.shared)
	b.tickets, b.shared, b.of = b.tickets[:0], b.shared[:0], b.of[:0]
}

// sendBatch sends the batch, notes how long that took, and gives out the answers. A
// store that panics does so in the first caller that still waits, as if it had made the
// call itself; the others learn nothing.
func (c *coalescer[R]) sendBatch(b *batch[R]) {
	reqs := c.slabs.Get(len(b.tickets))
	for i, t := range b.tickets {
		reqs[i] = t.req
	}
	start := time.Now()
	answers, broke := c.call(reqs)
	took := time.Since(start)
	c.mu.Lock()
	c.trip.note(took, len(reqs))
	c.mu.Unlock()
	learnt := !slices.ContainsFunc(answers, func(a Answer) bool { return a.Err != nil })
	c.deliver(b, reqs, answers, broke)
	if learnt { // else the store may be at work on them still
		c.slabs.Put(reqs)
		if c.recycle != nil {
			c.recycle(answers)
		}
	}
}

// call is one call of the store, under a deadline of its own.
func (c *coalescer[R]) call(reqs []R) (answers []Answer, broke *storePanic) {
	ctx := &callContext{Context: context.Background(), deadline: time.Now().Add(c.timeout)}
	defer ctx.end()
	defer func() {
		if v := recover(); v != nil {
			broke = &storePanic{v, debug.Stack()}
			answers = repeat(Answer{Err: fmt.Errorf("%w: store panicked: %v", ErrUnknown, v)},
				len(reqs))
		}
	}()
	return answered(c.send(ctx, reqs), len(reqs)), nil
}

// deliver gives every caller its answer, and orphans those of the callers that left.
func (c *coalescer[R]) deliver(b *batch[R], reqs []R, answers []Answer, broke *storePanic) {
	for n, t := range b.shared {
		t.answer = answers[b.of[n]].clone()
		if t.state.CompareAndSwap(ticketSent, ticketAnswered) {
			t.ready <- struct{}{}
		}
	}
	var left []R
	var unheard []Answer
	for i, t := range b.tickets {
		t.answer, t.broke = answers[i], broke
		if !t.state.CompareAndSwap(ticketSent, ticketAnswered) {
			left, unheard = append(left, reqs[i]), append(unheard, answers[i])
			continue
		}
		broke = nil
		t.ready <- struct{}{}
	}
	if c.orphans != nil && len(left) > 0 {
		c.orphans(left, unheard)
	}
	if broke != nil {
		panic(broke) // nobody is left to whom it could go
	}
}

// storePanic is what a store panicked with in a goroutine of ours, on its way to a caller.
type storePanic struct {
	value any
	stack []byte
}

func (p *storePanic) Error() string {
	return fmt.Sprintf("dedup: store panicked: %v\n\n%s", p.value, p.stack)
}

func (p *storePanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
