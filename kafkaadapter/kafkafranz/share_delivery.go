package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// delivery is a message from a poll to its acknowledgement. One goroutine handles it.
type delivery struct {
	s      *shareSession
	rec    *kgo.Record          // as kgo knows it
	msg    kafkaadapter.Message // has a copy, so that nobody else acknowledges it
	bad    error                // why the message must not run at all
	began  time.Time
	landed time.Time     // when the handler had returned nil
	lock   time.Duration // as the broker gave it with the poll
	asked  bool          // an answer is on its way
	answer chan answer
	over   bool // it is acknowledged

	otherTopic bool // its first topic is another one: its record may be from there

	labelled bool // Config.Label was asked
}

type answer struct {
	claim *dedup.Claim
	err   error
}

// failure is the error of a handler that is to run again.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func (s *shareSession) deliver(r *kgo.Record) *delivery {
	seen := *r
	now := time.Now()
	d := &delivery{s: s, rec: r, msg: messageOf(&seen), answer: make(chan answer, 1), began: now,
		lock: r.AcquisitionDeadline().Sub(now)}
	d.otherTopic, d.bad = s.engine.Identify(&d.msg)
	return d
}

// live handles a message until its acknowledgement.
func (d *delivery) live() {
	defer func() {
		if !d.over { // the handler ended this goroutine
			d.s.halt(kafkadriver.ErrGoexit)
			d.release()
		}
	}()
	for n := 0; ; n++ {
		why := d.try()
		if d.over {
			return
		}
		switch again := d.wait(n, why); {
		case again:
			continue
		case d.s.ctx.Err() != nil:
			d.giveBack()
		default:
			d.giveUp(why)
		}
		return
	}
}

// try tries to finish a message, and returns the reason if it could not.
func (d *delivery) try() error {
	if d.bad != nil {
		return d.park(nil, d.bad)
	}
	c, err := d.ask()
	switch {
	case errors.Is(err, dedup.ErrClosed):
		d.s.halt(err)
		return err
	case err != nil:
		return err
	}
	if found := kafkadriver.FoundLabel(c); d.s.engine.Label != nil && found != "" {
		d.msg.Found = found
	}
	switch {
	case c.Outcome == dedup.Acquired:
		return d.run(c)
	case c.Outcome == dedup.Duplicate && d.s.engine.Unparked(&d.msg, c):
		return d.park(nil, c.Err())
	case c.Outcome == dedup.Duplicate:
		d.s.engine.Skip(&d.msg, d.otherTopic, c)
		d.ack(kgo.AckAccept)
		return nil
	case c.Outcome == dedup.InFlight:
		if hook := d.s.engine.Observer.Waiting; hook != nil {
			hook(&d.msg)
		}
		return kafkaadapter.ErrBusy
	}
	if d.bad = kafkadriver.Unprocessable(c); d.bad != nil {
		return d.park(nil, d.bad)
	}
	return c.Err() // the store, or Config.Resolve, has to be asked again
}

// ask claims the message. It claims an uncertain message once more by itself, which calls the
// Deduper's Resolve.
func (d *delivery) ask() (*dedup.Claim, error) {
	if !d.asked {
		d.s.asks.Add(d)
	}
	d.asked = false
	a := <-d.answer
	if a.err != nil || a.claim.Outcome != dedup.Uncertain {
		return a.claim, a.err
	}
	req := d.request()
	return d.s.engine.Deduper.Claim(d.s.ctx, req.Key, func(r *dedup.Request) { *r = req })
}

func (d *delivery) request() dedup.Request {
	r := dedup.Request{Key: d.msg.ID, Scope: d.msg.Scope,
		Origin: driver.Origin{Source: d.s.engine.Group() + "/" + d.msg.Topic,
			Partition: d.msg.Partition, Offset: d.msg.Offset},
		LikelyDuplicate: d.rec.DeliveryCount() > 1, NoResult: true}
	if d.s.engine.Fingerprint {
		r.Fingerprint = driver.FingerprintOf(d.msg.Value)
	}
	if d.s.engine.Label != nil {
		r.Label = d.label()
	}
	return r
}

// label is the label for the claim: the label of the first claim of the id, if one was found.
func (d *delivery) label() string {
	if d.msg.Found != "" {
		return d.msg.Found
	}
	if !d.labelled {
		d.msg.Label, d.labelled = kafkadriver.Label(d.s.engine.Label(&d.msg)), true
	}
	return d.msg.Label
}

// run runs the handler of a message under its claim, when there is room for it.
func (d *delivery) run(c *dedup.Claim) error {
	run, end := c.KeepAlive(d.s.hard)
	defer end()
	d.msg.Attempt = c.Attempt
	if d.last() && c.Attempt > 1 && d.s.engine.Park != nil && c.Observed == dedup.Acquired {
		return d.park(c, fmt.Errorf("%w: delivery %d", kafkaadapter.ErrAttempts,
			d.rec.DeliveryCount()))
	}
	select {
	case d.s.slots <- struct{}{}:
		defer func() { <-d.s.slots }()
	case <-run.Done():
		return context.Cause(run)
	case <-d.s.ctx.Done():
	}
	if err := d.s.ctx.Err(); err != nil { // nothing begins any more
		d.letGo(c, kafkadriver.ErrRevoked)
		return err
	}
	return d.handled(run, c, d.handle(run, c))
}

// handled acts on the result of the handler.
func (d *delivery) handled(run context.Context, c *dedup.Claim, err error) error {
	inTime := run.Err() == nil
	switch {
	case err == nil:
		d.landed = time.Now()
		return d.record(c, inTime || errors.Is(context.Cause(run), kafkadriver.ErrDrained))
	case dedup.IsPermanent(err) && inTime:
		d.bad = err
		return d.park(c, err)
	case dedup.IsPermanent(err): // it was canceled, so it may not be that
		err = errCancelled
	}
	d.letGo(c, err)
	return failure{err}
}

var errCancelled = errors.New("kafkafranz: handler was canceled")

// record puts an effect on record, and accepts the message only then.
func (d *delivery) record(c *dedup.Claim, inTime bool) error {
	err := d.end(dedup.Completion{Claim: c, InTime: inTime})
	if err == nil {
		if hook := d.s.engine.Observer.Recorded; hook != nil {
			hook(&d.msg, time.Since(d.landed))
		}
		d.ack(kgo.AckAccept)
		return nil
	}
	// Another owner has taken the claim, or the store cannot be asked: only the store can say
	// whether the message is on record.
	d.warn("effect is not known to be recorded", err)
	if hook := d.s.engine.Observer.Unrecorded; hook != nil {
		hook(&d.msg, err)
	}
	return err
}

// end ends a claim together with others.
func (d *delivery) end(how dedup.Completion) error {
	e := completion{how: how, done: make(chan error, 1)}
	d.s.ends.Add(e)
	return <-e.done
}

// letGo releases a claim. An attempt that the end of Run has cut short does not count, unless its
// irreversible part may have begun.
func (d *delivery) letGo(c *dedup.Claim, why error) {
	unused := d.s.ctx.Err() != nil
	if err := d.end(dedup.Completion{Claim: c, Err: why, NotAttempted: unused}); unused &&
		errors.As(err, new(*dedup.InputError)) {
		_ = c.Release(d.s.base) // a few tries; then its lease ends
	}
}

// handle calls the handler with Attempts.Timeout. A panic becomes an error: the process has other
// messages in flight, and their leases to keep.
func (d *delivery) handle(ctx context.Context, c *dedup.Claim) (err error) {
	if d.s.engine.Attempts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.s.engine.Attempts.Timeout)
		defer cancel()
	}
	began, returned := time.Now(), false
	defer func() {
		if v := recover(); v != nil {
			err = d.panicked("handler", v)
		} else if !returned {
			err = kafkadriver.ErrGoexit
			_ = c.Release(d.s.base) // a few tries; then its lease ends
		}
		if hook := d.s.engine.Observer.Handled; hook != nil {
			hook(&d.msg, time.Since(began), err)
		}
	}()
	err = d.s.engine.Handler(ctx, &d.msg)
	returned = true
	if ctx.Err() != nil && dedup.IsPermanent(err) { // Attempts.Timeout cancels a handler, too
		return fmt.Errorf("%w: %s", errCancelled, err.Error())
	}
	return err
}

func (d *delivery) panicked(what string, v any) error {
	d.s.engine.Logger.Error("kafkafranz: "+what+" panicked", "topic", d.msg.Topic, "partition",
		d.msg.Partition, "offset", d.msg.Offset, "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("kafkafranz: %s panicked: %v", what, v)
}

func (d *delivery) warn(what string, err error) {
	d.s.engine.Logger.Warn("kafkafranz: "+what, "topic", d.msg.Topic, "partition", d.msg.Partition,
		"offset", d.msg.Offset, "error", err)
}

// ack acknowledges the message. Only the first one counts.
func (d *delivery) ack(status kgo.AckStatus) {
	d.over = true
	d.rec.Ack(status)
}
