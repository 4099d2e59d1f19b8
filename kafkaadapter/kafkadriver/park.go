package kafkadriver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// park puts a message aside for good, or stops the consumer. It never skips one silently. When it
// stops the consumer, it gives the claim back, so that a restart tries again.
func (p *Partition) park(t task, reason error) {
	it := t.Item
	p.cfg.suspects.end(it) // it does not run
	if p.cfg.Park == nil {
		p.letGo(it)
		t.Settle(pipeline.Stop(
			p.unprocessable(it, fmt.Errorf("there is no Config.Park: %w", reason))))
		return
	}
	if p.unidentified(t, reason) {
		return
	}
	p.parking.add(parkJob{p, t, reason})
}

func (p *Partition) unprocessable(it *item, reason error) error {
	return &kafkaadapter.UnprocessableError{Topic: p.at.Topic, Partition: p.at.Partition,
		Offset: it.msg.Offset, Err: reason}
}

// parked finishes a message that Park has kept.
func (p *Partition) parked(t task, reason error) {
	it := t.Item
	later := (*laterError)(nil)
	if errors.As(reason, &later) {
		if hook := p.cfg.Observer.Delayed; hook != nil {
			hook(it.msg, later.topic, later.err)
		}
	} else {
		p.logParked(it, reason)
		if hook := p.cfg.Observer.Parked; hook != nil {
			hook(it.msg, reason)
		}
	}
	if it.claim == nil {
		p.done(it)
		t.Settle(pipeline.Done())
		return
	}
	// With the record, a duplicate of the message is skipped. Without it, the duplicate would only
	// be parked again, so the offset does not wait for the record. A message that ran out of
	// attempts has not failed for good: it keeps its count, or becomes uncertain if it has called
	// MarkIrreversible.
	if later == nil && !errors.Is(reason, kafkaadapter.ErrAttempts) {
		reason = Parked(reason)
	}
	p.ends.Add(completion{task: t, claim: it.claim, err: reason, parked: true})
}

// parkedMark begins the text of a failure that is on record because its message was put aside. A
// failure that Config.Resolve has found is recorded before its message is put aside.
const parkedMark = "parked: "

// Parked returns the error to record for a message that was put aside for a reason.
func Parked(reason error) error { return dedup.Permanent(fmt.Errorf("%s%w", parkedMark, reason)) }

// FoundFailed reports whether the record is of a failure, and was written before the message was
// put aside.
func FoundFailed(c *dedup.Claim) bool {
	return c.Record.State == driver.StateFailed &&
		!strings.HasPrefix(string(c.Record.Result), parkedMark)
}

func (p *Partition) callPark(ctx context.Context, it *item, reason error) (err error) {
	what := "Config.Park"
	defer func() {
		if v := recover(); v != nil {
			err = p.panicked(what, it, v)
		}
	}()
	if later := (*laterError)(nil); errors.As(reason, &later) {
		what = "Attempts.Producer"
		return p.cfg.Attempts.Producer.Send(ctx,
			kafkaadapter.DeadLetter(later.topic, it.msg, later.err))
	}
	return p.cfg.Park(ctx, it.msg, reason)
}

// letGo releases the claim of a message that is not done.
func (p *Partition) letGo(it *item) {
	if it.claim != nil {
		_ = it.claim.Release(p.base) // a few tries; then its lease ends
	}
	p.drop(it)
}
