package kafkafranz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// last reports whether the broker archives the message if this delivery ends and the message is not
// accepted.
func (d *delivery) last() bool { return int(d.rec.DeliveryCount()) >= d.s.opts.Deliveries }

// spare reports whether a delivery is left for a crash after this one is given back.
func (d *delivery) spare() bool { return int(d.rec.DeliveryCount()) < d.s.opts.Deliveries-1 }

// hold is how long a message may hold up the next poll.
func (d *delivery) hold() time.Duration {
	return cmp.Or(d.s.opts.Hold, d.lock/2)
}

// limit returns how long a message may wait in this delivery, given why it waits, and whether there
// is a limit. Waiting for the store, and for Park, has no limit, because a release would use up
// deliveries.
func (d *delivery) limit(why error) (time.Duration, bool) {
	busy, failed := errors.Is(why, kafkaadapter.ErrBusy), errors.As(why, new(failure))
	switch {
	case !busy && !failed, !d.spare() && d.s.engine.Park == nil:
		return 0, false
	case busy && !d.spare():
		return d.s.engine.Attempts.BusyTimeout, true
	}
	return d.hold(), true
}

// wait waits for the next turn, and reports whether there is one in this delivery. A message that
// asks for more time than is left gets its next turn in the next delivery.
func (d *delivery) wait(n int, why error) (again bool) {
	after := d.s.engine.Pause(n, math.MaxInt64)
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(why, &asks) {
		after = asks.RetryAfter()
	}
	limit, limited := d.limit(why)
	left := limit - time.Since(d.began)
	again = !limited || after < left
	if !again {
		after = max(left, 0)
	}
	return kafkadriver.Sleep(d.s.ctx, after) == nil && again
}

// giveUp ends a delivery that has waited for long enough.
func (d *delivery) giveUp(why error) {
	if d.spare() {
		d.release()
		return
	}
	if !errors.Is(why, kafkaadapter.ErrBusy) {
		why = fmt.Errorf("%w: %d, the last one: %w", kafkaadapter.ErrAttempts, d.msg.Attempt, why)
	}
	d.bad = why
	d.live() // parks it
}

// giveBack ends a delivery because Run ends. It parks a message that would otherwise be lost.
func (d *delivery) giveBack() {
	if d.last() && d.s.engine.Park != nil {
		ctx, cancel := context.WithTimeout(d.s.base, lastPark)
		defer cancel()
		reason := d.bad
		if reason == nil {
			reason = fmt.Errorf("%w: delivery %d", kafkaadapter.ErrAttempts, d.rec.DeliveryCount())
		}
		if d.callPark(ctx, reason) == nil {
			d.parked(reason)
			return
		}
	}
	d.release()
}

// release gives the message back to the broker, which delivers it again or archives it.
func (d *delivery) release() {
	if d.last() {
		d.s.engine.Logger.Error(
			"kafkafranz: the last delivery of a message has failed: the broker archives it",
			"topic", d.msg.Topic, "partition", d.msg.Partition, "offset", d.msg.Offset)
	}
	d.ack(kgo.AckRelease)
}

// park puts a message aside for good, or stops Run. It never skips one silently. When it stops Run,
// it gives the claim back, if there is one, so that the next delivery tries again.
func (d *delivery) park(c *dedup.Claim, reason error) error {
	first := errors.Is(reason, kafkaadapter.ErrNoID) && !d.s.engine.Allow.NoID && d.spare() &&
		!d.s.engine.HasIDs(d.msg.Topic, d.msg.Partition)
	if first {
		reason = kafkadriver.ErrFirstNoIDs
	}
	if d.s.engine.Park == nil || first {
		if c != nil {
			d.end(dedup.Completion{Claim: c, Err: errCancelled}) //nolint:errcheck // its lease ends
		}
		d.s.halt(&kafkaadapter.UnprocessableError{Topic: d.msg.Topic, Partition: d.msg.Partition,
			Offset: d.msg.Offset, Err: reason})
		d.release()
		return nil
	}
	d.bad = reason // do not run it again before it is parked
	for n := 0; ; n++ {
		err := d.callPark(d.s.hard, reason)
		if err == nil {
			break
		}
		d.warn("message could not be parked", err)
		if d.s.engine.Backoff(d.s.ctx, n) != nil {
			if c != nil {
				d.letGo(c, errCancelled)
			}
			return err
		}
	}
	if c != nil {
		// With the record, a duplicate of the message is skipped. Without it, the duplicate would
		// only be parked again, so a failed record holds up nothing. A message that ran out of
		// attempts has not failed for good.
		how := dedup.Completion{Claim: c, Err: reason}
		if !errors.Is(reason, kafkaadapter.ErrAttempts) {
			how.Err = kafkadriver.Parked(reason)
		}
		d.end(how) //nolint:errcheck // see above
	}
	d.parked(reason)
	return nil
}

// parked accepts a message that has been put aside.
func (d *delivery) parked(reason error) {
	d.warn("message was given to Config.Park", reason)
	if hook := d.s.engine.Observer.Parked; hook != nil {
		hook(&d.msg, reason)
	}
	d.ack(kgo.AckAccept)
}

func (d *delivery) callPark(ctx context.Context, reason error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = d.panicked("Config.Park", v)
		}
	}()
	return d.s.engine.Park(ctx, &d.msg, reason)
}
