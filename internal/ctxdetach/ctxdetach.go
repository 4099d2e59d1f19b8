// Package ctxdetach bounds how long the effects of adapters run after their clients may have
// gone. A caller that only waits for an effect ends with its client. An effect that has begun does
// not end then, because its answer would be lost; it has a time limit of its own.
package ctxdetach

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errTimeout = fmt.Errorf("the handler's Timeout has passed: %w", context.DeadlineExceeded)

// fixed calls Done of its context only once. For a context that is not one of package context,
// AfterFunc starts a goroutine that calls Done again, perhaps only after the request is over. By
// then fasthttp uses the same RequestCtx for the next request, and fiber's adaptor.FiberApp writes
// to it. In a fiber app a RequestCtx is the context of a net/http handler.
type fixed struct {
	context.Context
	done <-chan struct{}
}

func (f fixed) Done() <-chan struct{} { return f.done }

// From returns a context with the values of client. It ends with client until leave is called.
// leave reports false when client had ended before the first call of leave, and later calls return
// the same; it is not for concurrent use. end ends the context and must be called.
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

// Bound returns the context of an effect: ctx for at most limit. If withClient is set, it also ends
// with client, and has the deadline of client. cancel must be called.
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
		// at its deadline ctx ends by itself, with that error
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

// TimedOut reports whether the limit of Bound ended ctx.
func TimedOut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeout) }
