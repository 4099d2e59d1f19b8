// Package detached is how long adapters let effects live whose clients may go. Who waits for
// an effect goes with its client. Once the effect has begun it has left its client, or its
// answer would be lost with it, and a bound of its own ends it.
package detached

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errTimeout = fmt.Errorf("the handler's Timeout has passed: %w", context.DeadlineExceeded)

// From returns a context with the values of client's, which ends with client's until leave is
// called. leave reports false where client was gone by then, and keeps to what it has said
// first; it is not for concurrent use. end ends the context and must be called.
func From(client context.Context) (ctx context.Context, leave func() bool, end func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() { cancel(context.Cause(client)) })
	left := false
	leave = func() bool {
		left = left || stop()
		return left
	}
	return ctx, leave, func() {
		stop()
		cancel(nil)
	}
}

// Bound returns the context of an effect: ctx for at most limit, and where withClient says so,
// for no longer than client, whose deadline it has then. cancel must be called.
func Bound(ctx, client context.Context, limit time.Duration, withClient bool) (_ context.Context, cancel context.CancelFunc) {
	ctx, cancelLimit := context.WithTimeoutCause(ctx, limit, errTimeout)
	if !withClient {
		return ctx, cancelLimit
	}
	cancelDeadline := context.CancelFunc(func() {})
	if deadline, ok := client.Deadline(); ok {
		ctx, cancelDeadline = context.WithDeadline(ctx, deadline)
	}
	stop := context.AfterFunc(client, func() {
		if !errors.Is(client.Err(), context.DeadlineExceeded) { // ctx ends by that itself, and says so
			cancelLimit()
		}
	})
	return ctx, func() {
		stop()
		cancelDeadline()
		cancelLimit()
	}
}

// TimedOut reports whether it is the limit of Bound that has ended ctx.
func TimedOut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeout) }
