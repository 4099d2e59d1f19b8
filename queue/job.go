package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

const (
	// settleTimeout bounds one call of a Delivery's functions.
	settleTimeout = 10 * time.Second
	// suspectAfter is the first attempt that makes its message a suspect when its process dies.
	suspectAfter = 2
	// parkedMark begins the recorded text of a failure whose message was parked, as in
	// kafkaadapter. A failure that Config.Resolve reported has no such mark.
	parkedMark = "parked: "
)

// decision is what the broker is told about a message.
type decision uint8

const (
	undecided decision = iota
	acknowledge
	redeliver
)

// job is a delivery from its arrival to its acknowledgement.
type job struct {
	b    *batch
	d    *Delivery
	rest func() // ends the calls of Extend, and waits for the last one

	claim *dedup.Claim
	first *job // has the same id in the same batch, and the claim
	// late says that the message is claimed only when its handler can run at once, because it has
	// been tried before, or because it is uncertain.
	late    bool
	suspect bool               // it may have killed its process, so it runs alone
	ctx     context.Context    // of the handler
	cancel  context.CancelFunc // ends the renewal

	reason   error            // to park it
	how      dedup.Completion // of the claim
	landed   time.Time        // when the handler had returned nil
	parked   bool
	decision decision
	err      error // why it is delivered again
	fatal    bool  // and the consumer cannot continue
	after    time.Duration
}

// extend tells the broker, once in each Every, that the message is at work, until rest is called.
func (j *job) extend() {
	j.rest = func() {}
	if j.d.Extend == nil || j.d.Every <= 0 {
		return
	}
	ctx, cancel := context.WithCancel(j.b.base)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(j.d.Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			call, end := context.WithTimeout(ctx, settleTimeout)
			if err := j.d.Extend(call); err != nil && ctx.Err() == nil {
				j.warn("broker could not be told that a message is at work", err)
			}
			end()
		}
	}()
	j.rest = func() { cancel(); <-done }
}

// run runs the handler or parks the message, and makes the decision.
func (j *job) run() {
	if j.decision != undecided {
		return
	}
	if len(j.b.jobs) > 1 { // else the batch has a worker already
		if !j.b.take(j.b.workers) {
			j.putBack(context.Cause(j.b.ctx))
			return
		}
		defer func() { <-j.b.workers }()
	}
	if j.suspect {
		if !j.b.take(j.b.suspects) {
			j.putBack(context.Cause(j.b.ctx))
			return
		}
		defer func() { <-j.b.suspects }()
	}
	if j.late {
		j.b.askLate(j)
	}
	if j.reason == nil && j.decision == undecided && (j.claim != nil || j.b.cfg.Unclaimed) {
		j.attempt()
	}
	if j.reason != nil {
		j.park()
	}
}

// attempt runs the handler, unless the message has been tried often enough.
func (j *job) attempt() {
	most := j.b.cfg.Attempts.Max
	counted := j.claim == nil || j.claim.Observed == dedup.Acquired
	if most > 0 && counted && j.d.Attempt > most {
		j.reason = fmt.Errorf("%w: %d", ErrAttempts, most)
		return
	}
	run := j.b.hard
	if j.claim != nil {
		run = j.ctx
	}
	ctx, cancel := run, context.CancelFunc(func() {})
	if limit := j.b.cfg.Attempts.Timeout; limit > 0 {
		ctx, cancel = context.WithTimeout(run, limit)
	}
	defer cancel()
	began := time.Now()
	err := j.protect("handler", func() error { return j.b.cfg.Handler(ctx, j.d) })
	if hook := j.b.cfg.Observer.Handled; hook != nil {
		hook(j.d, time.Since(began), err)
	}
	switch {
	case err == nil:
		lost := errors.Is(context.Cause(run), dedup.ErrLeaseLost)
		j.landed, j.decision = time.Now(), acknowledge
		j.how = dedup.Completion{Claim: j.claim, InTime: !lost}
	case dedup.IsPermanent(err) && ctx.Err() == nil:
		j.reason = err
	case most > 0 && counted && j.d.Attempt >= most && run.Err() == nil:
		if dedup.IsPermanent(err) { // as in again; it would be recorded as a failure
			err = fmt.Errorf("%w: %s", errCancelled, err.Error())
		}
		j.reason = fmt.Errorf("%w: %d, the last one: %w", ErrAttempts, j.d.Attempt, err)
	default:
		j.again(err)
	}
}

// protect turns a panic into an error: the process has other messages in flight, whose leases it
// must keep.
func (j *job) protect(what string, call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			j.b.cfg.Logger.Error("queue: "+what+" panicked", "scope", j.d.Scope, "id", j.d.ID,
				"panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("queue: %s panicked: %v", what, v)
		}
	}()
	return call()
}

// again has the message delivered again after an attempt that failed. An attempt that was cut short
// because the consumer ends does not count.
func (j *job) again(err error) {
	j.decision, j.err = redeliver, err
	why := err
	if dedup.IsPermanent(err) { // a canceled handler may call a failure permanent that is not
		why = errCancelled
	}
	j.how = dedup.Completion{Claim: j.claim, Err: why, NotAttempted: j.b.hard.Err() != nil}
	var asks interface{ RetryAfter() time.Duration }
	switch {
	case j.b.ctx.Err() != nil: // another process may have it at once
	case errors.As(err, &asks):
		j.after = asks.RetryAfter()
	default:
		j.after = j.b.retry.Delay(max(j.d.Attempt, j.d.Deliveries, 1)-1, 0, nil)
	}
}

// putBack has a message delivered again whose handler was not begun.
func (j *job) putBack(err error) {
	if j.decision == undecided {
		j.again(err)
		j.how.NotAttempted = true
	}
}

// park parks a message, or stops the consumer if there is no Park. It never skips a message
// silently.
func (j *job) park() {
	park := j.d.Park
	if own := j.b.cfg.Park; own != nil {
		park = func(ctx context.Context, reason error) error { return own(ctx, j.d, reason) }
	}
	if park == nil {
		j.again(errCancelled)
		j.err, j.fatal = &UnprocessableError{Scope: j.d.Scope, ID: j.d.ID, Err: j.reason}, true
		return
	}
	ctx, cancel := context.WithTimeout(j.b.base, settleTimeout)
	defer cancel()
	err := j.protect("Park", func() error { return park(ctx, j.reason) })
	if err != nil {
		j.warn("message could not be parked", err)
		j.again(fmt.Errorf("queue: message could not be parked: %w", err))
		return
	}
	// With the record, duplicates do not run again. A message whose attempts are used up has not
	// failed for good: it keeps its count, or becomes uncertain if it has called MarkIrreversible.
	j.how = dedup.Completion{Claim: j.claim, Err: j.reason}
	if !errors.Is(j.reason, ErrAttempts) {
		j.how.Err = dedup.Permanent(fmt.Errorf("%s%w", parkedMark, j.reason))
	}
	j.parked, j.decision = true, acknowledge
	j.warn("message was parked", j.reason)
	if hook := j.b.cfg.Observer.Parked; hook != nil {
		hook(j.d, j.reason)
	}
}

// recorded acts on the result of ending the claim.
func (j *job) recorded(ctx context.Context, err error) {
	switch {
	case j.parked: // without a record duplicates would only be parked again
	case j.how.Err != nil:
		var input *dedup.InputError
		if j.how.NotAttempted && errors.As(err, &input) {
			// Its irreversible part may have begun, so the attempt counts.
			_ = j.claim.Release(ctx) // a few tries, then it lapses
		}
	case dedup.CanAck(err):
		if hook := j.b.cfg.Observer.Recorded; hook != nil {
			hook(j.d, time.Since(j.landed))
		}
	default:
		// Another owner has taken the claim, or the store cannot be asked. When the message is
		// redelivered, the store says whether it is on record.
		j.warn("effect is not known to be recorded", err)
		if hook := j.b.cfg.Observer.Unrecorded; hook != nil {
			hook(j.d, err)
		}
		j.again(err)
	}
}

// end stops the background work: the renewal of the claim, and the calls of Extend.
func (j *job) end() {
	if j.cancel != nil {
		j.cancel()
	}
	j.rest()
}

// settle tells the broker.
func (j *job) settle() {
	j.end()
	ctx, cancel := context.WithTimeout(j.b.base, settleTimeout)
	defer cancel()
	var err error
	if j.decision == acknowledge {
		err = j.d.Ack(ctx)
	} else {
		err = j.d.Nack(ctx, j.after)
	}
	if err == nil {
		return
	}
	j.warn("broker has not confirmed an acknowledgement", err)
	if hook := j.b.cfg.Observer.AckRefused; hook != nil {
		hook(j.d, err)
	}
	if j.err == nil {
		j.err = fmt.Errorf("queue: acknowledgement is not confirmed: %w", err)
	}
}

func (j *job) warn(what string, err error) {
	j.b.cfg.Logger.Warn("queue: "+what, "scope", j.d.Scope, "id", j.d.ID, "error", err)
}

// unparked reports whether rec is a failure whose message nobody has parked.
func unparked(rec *dedup.Record) bool {
	return rec.State == driver.StateFailed && !strings.HasPrefix(string(rec.Result), parkedMark)
}
