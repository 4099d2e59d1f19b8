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
func (c *Coalescer[T]) room() bool {
	if c.senders == 0 {
		return true
	}
	return c.senders < c.rtt.sends() && c.waiting() >= c.share()
}

// share returns how many calls have to wait before one more batch is sent while others are under
// way. The mutex is held.
func (c *Coalescer[T]) share() int {
	sends := c.rtt.sends()
	share := (c.waiting() + c.sent) / sends
	if sends == minSends {
		share = max(share, nearShare)
	}
	return min(share, batchSize)
}

// start starts a sender. The mutex is held.
func (c *Coalescer[T]) start() {
	c.senders++
	c.gathering = true
	c.Life.Begin()
	go c.run()
}

// run sends batches as long as enough calls are queued.
func (c *Coalescer[T]) run() {
	defer c.Life.End()
	var b batch[T]
	for {
		// Yield, so that callers which were just woken, or come with the one that started us,
		// can queue up: with 16 callers that doubles the throughput.
		runtime.Gosched()
		if !c.take(&b) {
			return
		}
		b.giveUp()
		c.sendBatch(&b)
		if !c.gather(b.sent()) {
			return
		}
	}
}

// gather lets a sender whose batch is answered take the next batch. It ends the sender if another
// one is about to take it.
func (c *Coalescer[T]) gather(answered int) bool {
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
type batch[T any] struct {
	calls  []*Call[T]
	shared []*Call[T]       // calls that get the answer of one in calls
	of     []int            // the index of that one, for each of shared
	seen   map[[16]byte]int // index of calls
	late   []*Call[T]       // calls that are too late to be sent
	now    time.Time        // read for the first call that has a deadline
}

func (b *batch[T]) sent() int { return len(b.calls) + len(b.shared) }

// take moves the next batch out of the queues. It ends the sender when there is nothing to send. It
// also ends it when few calls wait and other senders are under way, because those look again when
// their batches are answered.
func (c *Coalescer[T]) take(b *batch[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathering = false
	if n := c.waiting(); n == 0 || c.senders > 1 && n < c.share() {
		c.senders--
		return false
	}
	b.begin(c.waiting())
	// Urgent calls that never end must not keep the others out.
	c.takeFrom(&c.urgent, b, batchSize-min(c.queue.n, batchSize/4))
	c.takeFrom(&c.queue, b, batchSize)
	c.sent += b.sent()
	if c.waiting() > 0 && c.room() {
		c.start()
	}
	return true
}

// takeFrom moves calls of a queue into the batch until the batch has limit calls. A store wants
// every ID once per call, so a second call of an ID waits for the next batch, or gets the same
// answer where calls may share one.
func (c *Coalescer[T]) takeFrom(q *queue[T], b *batch[T], limit int) {
	next := q.first
	for looks := takeLooks; next != nil && len(b.calls) < limit && looks > 0; looks-- {
		t := next
		next = t.next
		first, twice := b.seen[t.ID]
		switch {
		case b.tooLate(t):
			b.late = append(b.late, t)
		case !twice:
			b.seen[t.ID] = len(b.calls)
			b.calls = append(b.calls, t)
		case c.Share != nil:
			b.shared, b.of = append(b.shared, t), append(b.of, first)
		default:
			continue
		}
		q.remove(t)
		t.state.Store(callSent)
	}
}

// tooLate reports whether a call is past its deadline. Its caller has no timer, so we must tell it.
func (b *batch[T]) tooLate(t *Call[T]) bool {
	if t.until.IsZero() {
		return false
	}
	if b.now.IsZero() {
		b.now = time.Now()
	}
	return !b.now.Before(t.until)
}

func (b *batch[T]) begin(waiting int) {
	if b.seen == nil {
		b.seen = make(map[[16]byte]int, min(waiting, batchSize))
	}
	clear(b.seen)
	clear(b.calls)
	clear(b.shared)
	clear(b.late)
	b.calls, b.shared, b.of, b.late = b.calls[:0], b.shared[:0], b.of[:0], b.late[:0]
	b.now = time.Time{}
}

// giveUp answers the calls that are past their deadlines.
func (b *batch[T]) giveUp() {
	for _, t := range b.late {
		t.late = true
		t.answer()
	}
}

// sendBatch sends the batch, notes how long that took, and wakes the callers. A
// store that panics does so in the first caller that still waits, as if it had made the
// call itself; the others get what Fail writes.
func (c *Coalescer[T]) sendBatch(b *batch[T]) {
	if len(b.calls) == 0 {
		return
	}
	start := time.Now()
	broke := c.call(b.calls)
	took := time.Since(start)
	c.mu.Lock()
	c.rtt.note(took, len(b.calls))
	c.mu.Unlock()
	c.deliver(b, broke)
}

// call is one call of the store, under a deadline of its own.
func (c *Coalescer[T]) call(calls []*Call[T]) (broke *Panic) {
	ctx := lazyctx.WithTimeout(context.Background(), c.Timeout)
	defer ctx.End(context.Canceled)
	defer func() {
		if v := recover(); v != nil {
			broke = NewPanic(v)
			for _, t := range calls {
				c.Fail(&t.Of, fmt.Errorf("store panicked: %v", v))
			}
		}
	}()
	c.Send(ctx, calls)
	return nil
}

// deliver wakes every caller, and gives the calls of those that left to Abandoned.
func (c *Coalescer[T]) deliver(b *batch[T], broke *Panic) {
	for n, t := range b.shared { // before the caller of the first one is woken, and owns it
		c.Share(&t.Of, &b.calls[b.of[n]].Of)
		t.answer()
	}
	var left []*Call[T]
	for _, t := range b.calls {
		t.broke = broke
		if t.answer() {
			broke = nil
			continue
		}
		left = append(left, t)
	}
	if c.Abandoned != nil && len(left) > 0 {
		c.Abandoned(left)
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
