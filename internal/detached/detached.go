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

// fixed asks its context for Done once. For a context that is not one of package context,
// AfterFunc starts a goroutine that asks again, and may do so only after the request is over:
// fasthttp, whose RequestCtx is the context of a net/http handler in a fiber app, uses that
// RequestCtx for the next request by then, and fiber's adaptor.FiberApp writes to it.
type fixed struct {
	context.Context
	done <-chan struct{}
}

func (f fixed) Done() <-chan struct{} { return f.done }

// From returns a context with the values of client's, which ends with client's until leave is
// called. leave reports false where client was gone by then, and keeps to what it has said
// first; it is not for concurrent use. end ends the context and must be called.
func From(client context.Context) (ctx context.Context, leave func() bool, end func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	client = fixed{client, client.Done()}
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
func Bound(ctx, client context.Context, limit time.Duration, withClient bool) (_ context.Context,
	cancel context.CancelFunc) {
	ctx, cancelLimit := context.WithTimeoutCause(ctx, limit, errTimeout)
	if !withClient {
		return ctx, cancelLimit
	}
	cancelDeadline := context.CancelFunc(func() {})
	if deadline, ok := client.Deadline(); ok {
		ctx, cancelDeadline = context.WithDeadline(ctx, deadline)
	}
	client = fixed{client, client.Done()}
	stop := context.AfterFunc(client, func() {
		// ctx ends by that itself, and says so
		if !errors.Is(client.Err(), context.DeadlineExceeded) {
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
