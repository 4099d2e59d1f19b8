package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// process is one turn of a message on a worker. It ends in Done only when the message
// is done: recorded, a duplicate of something recorded, or parked.
func (p *partition) process(ctx context.Context, it *item) flow.Verdict {
	switch {
	case it.bad != nil:
		return p.park(ctx, it, it.bad)
	case p.a.cfg.Unclaimed:
		it.msg.Attempt++
		return p.unclaimed(ctx, it)
	}
	if it.run != nil && it.run.Err() != nil {
		p.drop(it) // the lease was lost while the message waited for its turn
	}
	if it.claim == nil {
		if verdict, won := p.claimAgain(ctx, it); !won {
			return verdict
		}
	}
	return p.claimed(ctx, it)
}

// unclaimed runs the handler, which records the message itself.
func (p *partition) unclaimed(ctx context.Context, it *item) flow.Verdict {
	switch err := p.handle(ctx, it); {
	case err == nil:
		p.done(it)
		return flow.Done()
	case dedup.IsPermanent(err):
		return p.park(ctx, it, err)
	}
	return flow.RetryAfter(p.backoff(it))
}

// claimed runs the handler under the claim and records what it did.
func (p *partition) claimed(ctx context.Context, it *item) flow.Verdict {
	// The handler's context ends with the claim, and with the worker's patience.
	run, cancel := context.WithCancelCause(it.run)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()

	switch err := p.handle(run, it); {
	case err == nil:
		return p.record(it)
	case dedup.IsPermanent(err):
		return p.park(ctx, it, err)
	}
	_ = it.claim.Release(p.base) // bounded by the lease; what fails lapses
	p.drop(it)
	return flow.RetryAfter(p.backoff(it))
}

// record completes the claim. The effect has landed, so this does not depend on the
// session any more; it ends when the lease does.
func (p *partition) record(it *item) flow.Verdict {
	err := it.claim.Complete(p.base, nil)
	if err == nil {
		p.done(it)
		return flow.Done()
	}
	// Another owner was there, or the store cannot be asked: whether the message is on
	// record is for the store to say. The offset is not marked on our word.
	p.a.cfg.Logger.Warn("kafkaadapter: effect is not known to be recorded", "topic", p.topic, "partition", p.number, "offset", it.msg.Offset, "error", err)
	p.drop(it)
	return flow.RetryAfter(p.backoff(it))
}

// claimAgain asks about one message that has to be asked about (again). It reports
// whether its claim was won; otherwise the verdict says what to do.
func (p *partition) claimAgain(ctx context.Context, it *item) (flow.Verdict, bool) {
	r := p.request(it)
	c, err := p.a.cfg.Deduper.Claim(ctx, r.Key, func(to *dedup.Request) { *to = r })
	var input *dedup.InputError
	switch {
	case errors.As(err, &input), errors.Is(err, dedup.ErrUnreadable):
		return p.park(ctx, it, err), false
	case err != nil:
		return flow.RetryAfter(p.backoff(it)), false
	}
	switch c.Outcome {
	case dedup.Acquired:
		p.adopt(it, c)
		return flow.Verdict{}, true
	case dedup.Duplicate:
		p.skip(it, c)
		return flow.Done(), false
	case dedup.InFlight:
		if hook := p.a.cfg.Observer.Waiting; hook != nil {
			hook(it.msg)
		}
		wait := p.backoff(it)
		if left := c.Record.Remaining; left > 0 {
			wait = min(wait, left+time.Millisecond)
		}
		return flow.RetryAfter(wait), false
	}
	return p.park(ctx, it, c.Err()), false
}

// handle calls the handler within its time. A panic is an error: the process has other
// messages in flight, and their leases to keep.
func (p *partition) handle(ctx context.Context, it *item) (err error) {
	if limit := p.a.cfg.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	began := time.Now()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kafkaadapter: handler panicked: %v", v)
			p.a.cfg.Logger.Error("kafkaadapter: handler panicked", "topic", p.topic, "partition", p.number, "offset", it.msg.Offset, "panic", v, "stack", string(debug.Stack()))
		}
		if hook := p.a.cfg.Observer.Handled; hook != nil {
			hook(it.msg, time.Since(began), err)
		}
	}()
	return p.a.cfg.Handler(ctx, it.msg)
}

// park puts a message aside for good, or stops the consumer: never a silent skip. The
// claim is given back in the second case, so that a restart tries again.
func (p *partition) park(ctx context.Context, it *item, reason error) flow.Verdict {
	if p.a.cfg.Park == nil {
		if it.claim != nil {
			_ = it.claim.Release(p.base)
			p.drop(it)
		}
		return flow.Stop(&UnprocessableError{Topic: p.topic, Partition: p.number, Offset: it.msg.Offset, Err: reason})
	}
	if err := p.a.cfg.Park(ctx, it.msg, reason); err != nil {
		p.a.cfg.Logger.Warn("kafkaadapter: message could not be parked", "topic", p.topic, "partition", p.number, "offset", it.msg.Offset, "error", err)
		it.bad = reason // do not run it again before it is parked
		return flow.RetryAfter(p.backoff(it))
	}
	if it.claim != nil {
		// The record spares duplicates a second run. Without it they would only be
		// parked again, so its failure does not keep the offset.
		_ = it.claim.Fail(p.base, reason)
	}
	if hook := p.a.cfg.Observer.Parked; hook != nil {
		hook(it.msg, reason)
	}
	p.done(it)
	return flow.Done()
}
