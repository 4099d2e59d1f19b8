package dedup

import (
	"context"
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

// Do runs fn once per key and window and returns its value to every caller: the first runs it,
// the others get the stored value.
//
//   - fn returns nil: the value is recorded, then returned. []byte and string are stored as
//     they are, struct{} as nothing, everything else as JSON.
//   - fn returns an error for which [IsPermanent] is true, while its context has not ended: it is
//     recorded, and replayed as a [*FailedError].
//   - fn returns any other error, panics, or calls runtime.Goexit: the claim is released, so
//     that a retry can run at once. A panic is passed on. An error that fn returns after its
//     context has ended may only mean that, so it is not permanent for the caller either.
//
// The context of fn has its attempt ([FromContext]), and is canceled with cause [ErrLeaseLost]
// when the claim is lost. The lease is renewed while fn runs. Make fn safe to repeat: it runs
// again after a crash before the record.
//
// The error is that of fn, or one that any call can return (see Calls above), or:
//
//   - [ErrInFlight], [ErrMismatch], [ErrUncertain] or [*FailedError]: fn did not run;
//   - [ErrNoResult], unless T is struct{}: the key is done, but its value was not kept, or
//     never given (Mark, Complete without a result);
//   - [driver.ErrUnreadable]: the stored value is not a T;
//   - [ErrLeaseLost], with the value: fn succeeded after its claim was lost;
//   - one for which [OutcomeUnknown] is true: with the value when its record was not confirmed,
//     without it when the lease had lapsed before fn began.
//
// Acknowledge the message when [CanAck] is true of the error. Have it redelivered when [CanRetry]
// or OutcomeUnknown is true. Otherwise park it or stop.
//
// While the store is down, claiming gives up after four times Config.StoreTimeout and up to 100
// ms of backoff, or when ctx ends; with thousands of calls at once some wait longer. After the
// effect, recording continues for up to one lease and one Config.StoreTimeout, also when ctx has
// ended. In a request handler keep the sum of both below the sender's timeout.
func Do[T any](ctx context.Context, d *Deduper, key string, fn func(context.Context) (T, error),
	opts ...Option) (T, error) {
	res, err := DoResult(ctx, d, key, fn, opts...)
	return res.Value, err
}

// DoResult is [Do] that also returns whether fn ran, and in which attempt.
func DoResult[T any](ctx context.Context, d *Deduper, key string,
	fn func(context.Context) (T, error), opts ...Option) (Result[T], error) {
	if err := d.check(ctx); err != nil {
		return Result[T]{}, err
	}
	if fn == nil {
		return Result[T]{}, &InputError{Field: "Func", Reason: "is nil"}
	}
	r := newRequest(key, opts)
	r.NoResult = r.NoResult || storesNothing[T]()
	var req driver.ClaimRequest
	if err := d.prepare(&r, &req); err != nil {
		return Result[T]{}, err
	}
	req.TakeUncertain = d.takesUncertain(&req)
	if !d.life.Enter() {
		return Result[T]{}, ErrClosed
	}
	defer d.life.Leave()
	var c *Claim
	if d.cfg.Wait == 0 {
		c = d.claimOnce(ctx, key, &req, true)
	} else {
		c = d.claimWaiting(ctx, key, &req, true)
	}
	c, err := d.granted(ctx, c)
	if err != nil {
		return Result[T]{}, err
	}
	res := Result[T]{Outcome: c.Outcome, Attempt: c.Attempt, Cause: c.Cause}
	if c.Outcome == Acquired {
		res.Value, err = runEffect(ctx, c, fn)
		return res, err
	}
	res.Record = c.Record
	if err := c.Err(); err != nil {
		return res, err
	}
	if !storesNothing[T]() && (c.Record.Result == nil || c.Record.NoResult || d.cfg.SeenOnly) {
		return res, ErrNoResult // not kept, or ended by Mark, or by Complete without a result
	}
	res.Value, err = decode[T](c.Record.Result)
	return res, err
}

// runEffect runs fn under the claim and ends the claim as fn ended.
func runEffect[T any](ctx context.Context, c *Claim,
	fn func(context.Context) (T, error)) (T, error) {
	own := c.running
	if own == nil { // Observe mode runs it although its answer needed no attempt
		own = new(running)
	}
	runCtx := &own.kept
	c.keep(ctx, runCtx, false)
	defer runCtx.drop()
	if err := c.overBefore(ctx, context.Cause(runCtx)); err != nil {
		var zero T
		return zero, err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or called runtime.Goexit
			_ = c.d.conclude(ctx, Completion{Claim: c, Err: errReleased})
		}
	}()
	value, err := fn(runCtx)
	returned = true
	if err != nil && IsPermanent(err) && runCtx.Err() != nil {
		err = &lateError{err}
	}

	done := Completion{Claim: c, Err: err}
	if err == nil {
		var encodeErr error
		switch done.Result, encodeErr = encode(value); {
		case encodeErr != nil:
			done.noResult = true
			c.d.cfg.Logger.Warn("dedup: result was not kept", idAttr(c.id), "error", encodeErr)
		case done.Result == nil && !storesNothing[T]():
			done.Result = []byte{} // a nil []byte is a value; nil says that there is none
		}
	}
	after := &own.after
	c.d.beginAfter(ctx, after)
	defer after.End(context.Canceled)
	return value, merge(err, c.d.endOne(after, &done, &own.change))
}

// overBefore returns why the effect of a claim must not begin, given the cause that ended its
// context. Either Close gave up while we were claiming. Or this process stood still until the
// lease had lapsed, so that another owner may be at work.
func (c *Claim) overBefore(ctx context.Context, cause error) error {
	switch {
	case errors.Is(cause, ErrClosed):
		return errors.Join(ErrClosed, c.d.conclude(ctx, Completion{Claim: c, Err: errReleased}))
	case errors.Is(cause, ErrLeaseLost):
		return unknown(ErrLeaseLost) // a lapsed lease needs no release
	}
	return nil
}
