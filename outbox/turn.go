package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// outcome is what came of one turn.
type outcome struct {
	verdict *verdict // nil: nothing was published
	parked  []Parked
	waits   bool            // there are messages, and all of them wait
	full    bool            // there may be more behind what was read
	left    bool            // there are others, which wait
	err     error           // the shard is to wait
	hung    <-chan struct{} // closed when a call of the publisher that was left behind returns
}

func (o *outcome) found() bool {
	return o.verdict != nil && o.err == o.verdict.whole && len(o.verdict.acknowledged) > 0 //nolint:errorlint // the same or none
}

// turn publishes one batch of a shard, if nobody else has the shard.
func (r *Relay) turn(ctx context.Context, no int, s *shard) report {
	began := time.Now()
	delay := r.cfg.retry().Delay(s.failures, 0, nil) // if it fails
	o := r.serve(ctx, no, s, delay)
	r.tell(ctx, &o)
	rep := report{shard: no, found: o.found(), rests: o.waits || o.err != nil}
	// Where something waits, a turn that finds nothing else says for how long to rest.
	rep.more = rep.found && (o.full || o.left) || o.err == nil && o.verdict != nil && len(o.verdict.failed) > 0
	switch {
	case o.err != nil:
		s.failures++
		s.until = time.Now().Add(delay)
	case rep.found:
		s.failures = 0
	}
	s.rest(o.waits, began, &r.cfg)
	if o.hung != nil {
		// The transaction has ended and others may have the shard. But another call by this
		// worker could hang as well, and then there would be ever more of them.
		<-o.hung
	}
	return rep
}

// rest puts off the next look at a shard in which all messages wait: rarer the longer it is so,
// and the longer a look takes. Other shards may have the relay poll all the time.
func (s *shard) rest(waits bool, began time.Time, cfg *RelayConfig) {
	if !waits {
		s.waiting = time.Time{}
		return
	}
	if s.waiting.IsZero() {
		s.waiting = began
	}
	now := time.Now()
	s.until = now.Add(min(max(now.Sub(s.waiting)/idleShare, 10*now.Sub(began), cfg.least()), cfg.PollMax))
}

var errTooLong = errors.New("outbox: a part of a turn took too long")

// budget is a context whose end is moved: each part of a turn has a time of its own, so that a
// slow one leaves to the next what it needs. What has ended stays so.
func budget(ctx context.Context, first time.Duration) (inner context.Context, next func(time.Duration), end func()) {
	inner, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(first, func() { cancel(errTooLong) })
	return inner, func(limit time.Duration) { timer.Reset(limit) }, func() { timer.Stop(); cancel(nil) }
}

// because tells why, beside what came of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// serve is the transaction of a turn, or what stands for it.
func (r *Relay) serve(ctx context.Context, no int, s *shard, delay time.Duration) (o outcome) {
	began := time.Now()
	ctx, next, end := budget(ctx, prepare)
	defer end()
	defer func() { o.err = because(ctx, o.err) }()
	locked, err := r.lock(ctx, no)
	if err != nil || locked == nil {
		o.err = err
		return o
	}
	defer locked.end()
	var b *batch
	if b, o.full, o.err = r.gather(ctx, locked, no, s); o.err != nil || b.empty() {
		o.waits = o.err == nil && b.left
		return o
	}
	o.left = b.left
	// A process that was stopped meanwhile may have lost the shard to another.
	if time.Since(began) >= prepare {
		o.err = errTooLong
		return o
	}
	next(r.cfg.PublishTimeout + linger)
	var results []error
	results, o.hung = r.publish(ctx, b.messages)
	next(grace)
	o.verdict = b.judge(results)
	o.parked, o.err = r.settle(ctx, locked, no, o.verdict, delay)
	s.sure = o.err == nil
	if o.err == nil {
		o.err = o.verdict.whole
	}
	return o
}

// gather reads what there is to publish.
func (r *Relay) gather(ctx context.Context, l *locked, no int, s *shard) (b *batch, full bool, err error) {
	rows, full, left, err := r.read(ctx, l, no, s)
	if err != nil {
		return nil, false, fmt.Errorf("outbox: read: %w", err)
	}
	b = r.pick(rows)
	b.left = left || len(b.rows)+len(b.refused) < len(rows)
	if b.empty() {
		return b, full, nil
	}
	if !s.sure {
		if err := r.rehearse(ctx, l, no, rows[0].id); err != nil {
			return nil, false, fmt.Errorf("outbox: nothing is published, because it could not be deleted: %w", err)
		}
	}
	return b, full, nil
}

// tell reports what came of a turn, whose transaction has ended: who is told may use the database.
func (r *Relay) tell(ctx context.Context, o *outcome) {
	for _, p := range o.parked {
		r.cfg.OnPark(context.WithoutCancel(ctx), p)
	}
	if o.verdict != nil {
		r.tellOf(o.verdict)
	}
	if o.err != nil {
		r.stats.failures.Add(1)
		r.cfg.OnError(o.err)
	}
}

// tellOf reports messages that have failed by themselves.
func (r *Relay) tellOf(v *verdict) {
	for _, f := range v.failed {
		r.stats.failures.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s, attempt %d: %w", f.row.ID, f.row.Topic, f.row.attempts+1, f.err))
	}
	for _, f := range v.overtaken {
		r.stats.overtaken.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s: %w: %w", f.row.ID, f.row.Topic, ErrOvertaken, f.err))
	}
}
