package partition

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// yieldAfter is how long a message may wait in front of others that hold their claims.
const yieldAfter = time.Second

// process is one turn of a message on a worker. It ends in Done only when the message
// is done: recorded, a duplicate of something recorded, or parked.
func (p *Partition) process(ctx context.Context, it *item) flow.Verdict {
	p.queued.begin(it)
	switch {
	case it.msg.Bad != nil:
		return p.park(ctx, it, it.msg.Bad)
	case p.cfg.unclaimed():
		it.msg.Attempt++
		return p.unclaimed(ctx, it)
	}
	if it.claim == nil || it.run.Err() != nil { // lost, or given back, while it waited for its turn
		p.drop(it)
		if verdict, won := p.claimAgain(ctx, it); !won {
			return verdict
		}
	}
	return p.claimed(ctx, it)
}

// unclaimed runs the handler, which records the message itself.
func (p *Partition) unclaimed(ctx context.Context, it *item) flow.Verdict {
	switch err := p.handle(ctx, it); {
	case err == nil:
		p.done(it)
		return flow.Done()
	case dedup.IsPermanent(err) && ctx.Err() == nil:
		return p.park(ctx, it, err)
	default:
		return p.retryAfter(it, err)
	}
}

// claimed runs the handler under the claim and records what it did.
func (p *Partition) claimed(ctx context.Context, it *item) flow.Verdict {
	// The handler's context ends with the claim, and with the worker's patience.
	run, cancel := context.WithCancelCause(it.run)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine
			p.letGo(it)
		}
	}()
	err := p.handle(run, it)
	returned = true

	switch {
	case err == nil:
		return p.record(it)
	case dedup.IsPermanent(err) && run.Err() == nil: // what a cancelled handler calls permanent may be that
		return p.park(ctx, it, err)
	}
	p.failed(it, err)
	return p.retryAfter(it, err)
}

// failed ends the claim of a message whose handler has failed, and tells the store
// whether its irreversible part has begun.
func (p *Partition) failed(it *item, err error) {
	if it.claim != nil && !dedup.IsPermanent(err) {
		_ = p.cfg.Deduper.CompleteBatch(p.base, []dedup.Completion{{Claim: it.claim, Err: err}})
		p.drop(it)
		return
	}
	p.letGo(it)
}

// letGo releases the claim of a message that is not done.
func (p *Partition) letGo(it *item) {
	if it.claim != nil {
		_ = it.claim.Release(p.base) // a few tries; what fails lapses
	}
	p.drop(it)
}

// record completes the claim. The effect has landed, so this does not depend on the
// session any more; it ends when the lease does.
func (p *Partition) record(it *item) flow.Verdict {
	err := it.claim.Complete(p.base, nil)
	if err == nil {
		p.done(it)
		return flow.Done()
	}
	// Another owner was there, or the store cannot be asked: whether the message is on
	// record is for the store to say. The offset is not marked on our word.
	p.warn("effect is not known to be recorded", it, err)
	p.drop(it)
	return p.retry(it)
}

// claimAgain asks about one message that has to be asked about (again). It reports
// whether its claim was won; otherwise the verdict says what to do.
//
// It is a batch of one: a single call would wait for as long as the Deduper's
// configuration says, and on a worker which the owner of the key may need. Only an
// uncertain key is worth a single call, which asks Config.Resolve.
func (p *Partition) claimAgain(ctx context.Context, it *item) (flow.Verdict, bool) {
	answers, err := p.cfg.Deduper.ClaimBatch(ctx, []dedup.Request{p.request(it)})
	if err != nil {
		return flow.Stop(err), false
	}
	c := answers[0]
	if c.Outcome == dedup.Uncertain {
		if c, err = p.findOut(ctx, it); err != nil {
			if errors.Is(err, dedup.ErrClosed) {
				return flow.Stop(err), false
			}
			return flow.RetryAfter(p.poll(it)), false
		}
	}
	if err := unprocessable(c); err != nil {
		return p.park(ctx, it, err), false
	}
	switch c.Outcome {
	case dedup.Acquired:
		it.polls = 0
		p.adopt(it, c)
		return flow.Verdict{}, true
	case dedup.Duplicate:
		p.skip(it, c)
		return flow.Done(), false
	case dedup.InFlight:
		if hook := p.cfg.Hooks.Waiting; hook != nil {
			hook(&it.msg)
		}
	}
	wait := p.poll(it)
	if left := c.Record.Remaining; c.Outcome == dedup.InFlight && left > 0 {
		wait = min(wait, left+time.Millisecond)
	}
	return flow.RetryAfter(wait), false
}

// findOut claims a message that is uncertain, and asks about it if somebody can be asked.
func (p *Partition) findOut(ctx context.Context, it *item) (*dedup.Claim, error) {
	req := p.request(it)
	return p.cfg.Deduper.Claim(ctx, req.Key, func(r *dedup.Request) { *r = req })
}

// poll is how long a message waits that is in flight elsewhere, or cannot be asked
// about. Those behind it in its lane do not keep their claims for all that time.
func (p *Partition) poll(it *item) time.Duration {
	if it.polls == 0 {
		it.waiting, it.wait = time.Now(), 0
	}
	if time.Since(it.waiting) >= yieldAfter {
		p.yield(it)
	}
	it.wait = p.cfg.Retry.Delay(it.polls, it.wait, nil)
	it.polls++
	return it.wait
}

// handle calls the handler within its time. A panic is an error: the process has other
// messages in flight, and their leases to keep.
func (p *Partition) handle(ctx context.Context, it *item) (err error) {
	if limit := p.cfg.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	began, returned := time.Now(), false
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked("handler", it, v)
		} else if !returned {
			err = flow.ErrNoVerdict // it ended the goroutine
		}
		if hook := p.cfg.Hooks.Handled; hook != nil {
			hook(&it.msg, time.Since(began), err)
		}
	}()
	err = p.cfg.Handle(ctx, &it.msg)
	returned = true
	return err
}

func (p *Partition) panicked(what string, it *item, v any) error {
	p.cfg.Logger.Error("kafkaadapter: "+what+" panicked", "topic", p.at.Topic, "partition", p.at.Partition, "offset", it.msg.Offset, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("kafkaadapter: %s panicked: %v", what, v)
}

// park puts a message aside for good, or stops the consumer: never a silent skip. The
// claim is given back in the second case, so that a restart tries again.
func (p *Partition) park(ctx context.Context, it *item, reason error) flow.Verdict {
	if p.cfg.Park == nil {
		p.letGo(it)
		return flow.Stop(p.cfg.Unprocessable(p.at.Topic, p.at.Partition, &it.msg, reason))
	}
	if err := p.callPark(ctx, it, reason); err != nil {
		p.warn("message could not be parked", it, err)
		it.msg.Bad = reason // do not run it again before it is parked
		if ctx.Err() != nil {
			// The partition has been given up without waiting for this turn: nobody would
			// come back for the claim, and it would be renewed for ever.
			p.letGo(it)
		}
		return p.retry(it)
	}
	if it.claim != nil {
		// The record spares duplicates a second run. Without it they would only be
		// parked again, so its failure does not keep the offset.
		_ = it.claim.Fail(p.base, reason)
	}
	if hook := p.cfg.Hooks.Parked; hook != nil {
		hook(&it.msg, reason)
	}
	p.done(it)
	return flow.Done()
}

func (p *Partition) callPark(ctx context.Context, it *item, reason error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked("Config.Park", it, v)
		}
	}()
	return p.cfg.Park(ctx, &it.msg, reason)
}

// retry runs a message again after a failure.
func (p *Partition) retry(it *item) flow.Verdict {
	it.wait = p.cfg.Retry.Delay(it.tries, it.wait, nil)
	it.tries++
	return flow.RetryAfter(it.wait)
}

// retryAfter is retry, at the time that the handler's error may ask for. Those behind the
// message in its lane do not keep their claims for a long one.
func (p *Partition) retryAfter(it *item, err error) flow.Verdict {
	var asks interface{ RetryAfter() time.Duration }
	if !errors.As(err, &asks) {
		return p.retry(it)
	}
	it.tries++
	after := asks.RetryAfter()
	if after >= yieldAfter {
		p.yield(it)
	}
	return flow.RetryAfter(after)
}
