package kafkadriver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// yieldAfter is how long a message may wait in front of others that hold their claims.
const yieldAfter = time.Second

type task = pipeline.Task[*item]

// process is one turn of messages on a worker: one message, or many with a batch handler. It
// settles each of them, or hands it to the asker or the ender, which settles it.
func (p *Partition) process(ctx context.Context, tasks []task) {
	run := tasks[:0]
	var head blockedHead
	for i, t := range tasks {
		ready := p.begin(ctx, t, &head)
		tasks[i] = task{} // handed over, or moved to the front
		if ready {
			run = append(run, t)
		}
	}
	switch {
	case len(run) == 0:
	case p.cfg.BatchHandler != nil:
		p.runBatch(ctx, run)
	default:
		p.runOne(ctx, run[0])
	}
}

// blockedHead is the last message of a turn that could not run yet. With a batch handler the
// messages behind it in its queue are part of the same turn: they wait for it.
type blockedHead struct {
	it    *item // read nothing but its key: somebody else has it by now
	asked bool  // the store is asked about it, for the first time
}

// begin begins a message's turn, and reports whether it may run now.
func (p *Partition) begin(ctx context.Context, t task, head *blockedHead) bool {
	it := t.Item
	switch {
	case ctx.Err() != nil: // the partition is gone: nothing begins any more
		p.putOff(t, 0)
		return false
	case head.it != nil && sameQueue(head.it, it, p.cfg.order):
		p.holdBack(t, head.asked)
		return false
	case it.bad == nil && !it.landed && p.doubts.Load() >= int64(p.cfg.Tuning.Workers):
		// Too many effects have happened without a confirmed record. More of them would be the
		// opposite of failing closed. No further message is claimed meanwhile or counted as begun:
		// otherwise the partition would soon hold and renew claims of the whole backlog.
		*head = blockedHeadOf(it)
		p.putOff(t, doubtPause)
		return false
	}
	waits := blockedHeadOf(it)
	p.queued.begin(it)
	ready := p.ready(ctx, t)
	if !ready {
		*head = waits
	}
	return ready
}

func blockedHeadOf(it *item) blockedHead { return blockedHead{it: it, asked: it.polls == 0} }

// putOff ends a turn that has not begun. The message keeps its claim, unless nobody comes for it
// any more: then the claim is given back.
func (p *Partition) putOff(t task, after time.Duration) {
	p.queued.add(t.Item)
	t.Settle(pipeline.RetryAfter(after))
	p.giveBackLate([]task{t})
}

// holdBack puts a message off behind the one in front of it. The store is asked about both
// together, but only once: a later question could win a claim that is then held behind a message
// that waits for another process.
func (p *Partition) holdBack(t task, ask bool) {
	it := t.Item
	if !ask || p.cfg.unclaimed() || it.bad != nil || it.uncertain || p.queued.add(it) {
		p.putOff(t, 0)
		return
	}
	p.drop(it)
	p.asks.Add(t)
}

// ready reports whether the message may run now. If not, another goroutine has it.
func (p *Partition) ready(ctx context.Context, t task) bool {
	it := t.Item
	switch {
	case it.bad != nil:
		p.park(t, it.bad)
		return false
	case p.cfg.unclaimed():
		it.msg.Attempt++
		return true
	case !p.holds(it): // never had, lost, or given back while it waited
		p.drop(it)
		p.ask(ctx, t)
		return false
	case it.landed: // here, under an earlier claim; nobody has run it since
		p.landed(t)
		return false
	case p.overCap(it):
		p.park(t, fmt.Errorf("%w: %d", kafkaadapter.ErrAttempts, p.cfg.Attempts.Max))
		return false
	}
	return true
}

// holds reports whether the message has a claim that is not lost. A claim of a drained partition
// still counts, although the handler's context has ended.
func (p *Partition) holds(it *item) bool {
	return it.claim != nil &&
		(it.run.Err() == nil || errors.Is(context.Cause(it.run), pipeline.ErrDrained))
}

// ask asks the store about a message that holds no claim.
func (p *Partition) ask(ctx context.Context, t task) {
	switch {
	case !p.mayAsk(t.Item):
		t.Settle(pipeline.RetryAfter(p.standBy(t.Item)))
	case t.Item.uncertain:
		p.findOut(ctx, t)
	default:
		p.asks.Add(t)
	}
}

// runOne runs the handler of one message under its claim.
func (p *Partition) runOne(ctx context.Context, t task) {
	it := t.Item
	it.begun = true
	run := ctx
	if it.claim != nil {
		run = it.run
	}
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine
			p.letGo(it)
		}
	}()
	err := p.handle(run, it)
	returned = true
	p.handled(ctx, t, run.Err() == nil, err)
}

// handled acts on the result of a handler. inTime says that its context was alive when it returned.
func (p *Partition) handled(ctx context.Context, t task, inTime bool, err error) {
	it := t.Item
	switch {
	case err == nil && p.cfg.unclaimed():
		p.done(it)
		t.Settle(pipeline.Done())
	case err == nil:
		it.landed = p.holds(it) // the lease may be lost before that is recorded
		p.landed(t)
	case dedup.IsPermanent(err) && inTime:
		p.park(t, err)
	case inTime && p.exhausted(it):
		p.park(t, fmt.Errorf("%w: %d, the last one: %w", kafkaadapter.ErrAttempts, it.msg.Attempt,
			err))
	case inTime && p.delays(t, err):
	default:
		p.failed(ctx, t, err)
	}
}

// landed records an effect.
func (p *Partition) landed(t task) {
	if p.cfg.Observer.Recorded != nil && t.Item.landedAt.IsZero() {
		t.Item.landedAt = time.Now()
	}
	p.ends.Add(completion{task: t, claim: t.Item.claim, inTime: t.Item.landed})
}

// overCap reports whether a message has been claimed more often than it may be. A message
// that runs although it was not won (Observe, FailOpen) has no count of its own.
func (p *Partition) overCap(it *item) bool {
	return p.cfg.Attempts.Max > 0 && it.msg.Attempt > p.cfg.Attempts.Max &&
		it.claim.Observed == dedup.Acquired
}

// exhausted reports whether a failed attempt was the last one.
func (p *Partition) exhausted(it *item) bool {
	return p.cfg.Attempts.Max > 0 && it.msg.Attempt >= p.cfg.Attempts.Max &&
		(it.claim == nil || it.claim.Observed == dedup.Acquired)
}

// failed ends the claim of a message whose handler has failed, tells the store whether its
// irreversible part has begun, and has the message run again. An attempt that was canceled because
// the partition is given up does not count.
func (p *Partition) failed(ctx context.Context, t task, err error) {
	it := t.Item
	if it.claim == nil {
		t.Settle(p.retryAfter(it, err))
		return
	}
	p.ends.Add(completion{task: t, claim: it.claim, err: retryable(err),
		notAttempted: ctx.Err() != nil})
}

// retryable returns the error of a handler that is to run again. It is never permanent: a canceled
// handler may call an error permanent that is not.
func retryable(err error) error {
	if dedup.IsPermanent(err) {
		return fmt.Errorf("%w: %s", errCancelled, err.Error())
	}
	return err
}

// handle calls the handler with Attempts.Timeout. A panic becomes an error: the process has other
// messages in flight, and their leases to keep.
func (p *Partition) handle(ctx context.Context, it *item) (err error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	defer p.cfg.suspects.end(it)
	hook, returned := p.cfg.Observer.Handled, false
	var began time.Time
	if hook != nil {
		began = time.Now()
	}
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked("handler", it, v)
		} else if !returned {
			err = pipeline.ErrNoDecision // it ended the goroutine
		}
		if hook != nil {
			hook(it.msg, time.Since(began), err)
		}
	}()
	err = p.cfg.Handler(ctx, it.msg)
	returned = true
	if ctx.Err() != nil { // Attempts.Timeout cancels a handler, too
		return retryable(err)
	}
	return err
}

// limit bounds a handler's time.
func (p *Partition) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.cfg.Attempts.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.cfg.Attempts.Timeout)
}

func (p *Partition) panicked(what string, it *item, v any) error {
	p.cfg.Logger.Error("kafkaadapter: "+what+" panicked", "topic", p.at.Topic, "partition",
		p.at.Partition, "offset", it.msg.Offset, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("kafkaadapter: %s panicked: %v", what, v)
}

// retry runs a message again after a failure.
func (p *Partition) retry(it *item) pipeline.Decision {
	w := it.wait()
	w.backoff = p.cfg.retry.Delay(it.tries, w.backoff, nil)
	return p.again(it, w.backoff)
}

// again runs a message after a while. If that is long, the messages behind it in its queue give up
// their claims.
func (p *Partition) again(it *item, after time.Duration) pipeline.Decision {
	it.tries++
	if after >= yieldAfter {
		p.yield(it)
	}
	return pipeline.RetryAfter(after)
}

// retryAfter does what retry does, with the delay of err if err is a RetryAfter error.
func (p *Partition) retryAfter(it *item, err error) pipeline.Decision {
	var asks interface{ RetryAfter() time.Duration }
	if !errors.As(err, &asks) {
		return p.retry(it)
	}
	return p.again(it, asks.RetryAfter())
}
