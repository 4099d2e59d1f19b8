package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// Do calls fn until fn succeeds, or returns an error that is not retryable, or the policy ends the
// retries.
//
// The context of fn is bounded by the timeout of its attempt, and canceled when fn returns: the
// value of fn must not depend on it. It carries [NoRetry] if Do itself retries, so that no layer
// below does. Attempt counts from 1. An Idempotency-Key belongs to the operation and not to the
// attempt: make it before Do, not in fn, and not with [TransportConfig].GenerateKeys below.
//
// An error that is not retryable is returned as fn returned it. A retryable error that gets no
// further attempt is wrapped in a [*GaveUpError] with the reason. Under [NoRetry] this happens to
// the first error. If ctx ends before the first attempt, Do returns the context's error and its
// cause; if ctx ends during a wait, a GaveUpError. A bad policy, or a nil fn, is an error that
// names it. With an error Do returns the zero T.
//
// Do is safe for concurrent use, starts no goroutine, and lets panics of fn pass.
func Do[T any](ctx context.Context, p Policy,
	fn func(ctx context.Context, attempt int) (T, error)) (T, error) {
	var zero T
	p, err := p.complete()
	if err != nil {
		return zero, err
	}
	if fn == nil {
		return zero, errors.New("retry: fn is nil")
	}
	if ctx.Err() != nil {
		return zero, ended(ctx)
	}
	c := newAttemptLoop(ctx, p)
	defer c.refund() // also if OnRetry panics
	p.Budget.Deposit()
	for {
		v, err := try(ctx, c, fn)
		if err == nil {
			return v, nil
		}
		worth, after := p.worth(err)
		if !worth || ctx.Err() != nil {
			return zero, err
		}
		if err := c.rest(ctx, failure{err: err, after: after}); err != nil {
			return zero, err
		}
	}
}

// try is one attempt.
func try[T any](ctx context.Context, c *attemptLoop, fn func(context.Context, int) (T, error)) (T,
	error) {
	inner := ctx
	if c.retries() {
		inner = NoRetry(ctx)
	}
	if d := c.timeout(); d > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeoutCause(inner, d, &timeoutError{d})
		defer cancel()
	}
	c.sent()
	return fn(inner, c.sends)
}

// rest reports the failure f to OnRetry and waits. Its error says why there is no next attempt.
func (c *attemptLoop) rest(ctx context.Context, f failure) error {
	delay, why := c.pause(f)
	if c.OnRetry != nil {
		c.OnRetry(c.event(f, delay, why))
	}
	if why != 0 {
		return c.gaveUp(why, f.err)
	}
	return c.sleep(ctx, delay, f)
}

// sleep waits between two attempts.
func (c *attemptLoop) sleep(ctx context.Context, delay time.Duration, f failure) error {
	if backoff.Sleep(ctx, delay) != nil {
		return c.gaveUp(ContextEnded, fmt.Errorf("%w; last failure: %w", ended(ctx), f.err))
	}
	if why := c.late(0); why != 0 { // it took long to wake up
		return c.gaveUp(why, f.err)
	}
	return nil
}
