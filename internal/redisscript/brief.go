package redisscript

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// KeepsDeadlines reports whether a client gives up waiting for a reply at the deadline of
// the context: by default it reads on until its ReadTimeout.
func KeepsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// Brief returns a context for one try of a client that [KeepsDeadlines]: it ends with ctx,
// and at the latest when limit has passed.
func Brief(ctx context.Context, limit time.Duration) context.Context {
	brief := &briefContext{Context: ctx, until: time.Now().Add(limit)}
	if c, ok := ctx.(interface{ Caller() context.Context }); ok {
		brief.caller = c.Caller()
	}
	return brief
}

// briefContext looks at the clock when it is asked, and wakes nobody who waits for its
// end: that costs no timer. Who waits, waits for a connection; a try that was not answered
// in time is over when the client asks whether there is to be another one.
type briefContext struct {
	context.Context
	until time.Time
	// caller is the context without its deadline, if there is such a one: to wait for its
	// end costs no timer either.
	caller context.Context
	asked  atomic.Bool
}

// over is closed.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Deadline implements [context.Context].
func (c *briefContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.until) {
		return d, true
	}
	return c.until, true
}

// Done implements [context.Context]. A client asks first in passing, before it takes a
// connection, and again when it has to wait for one: only then the deadline matters.
func (c *briefContext) Done() <-chan struct{} {
	switch {
	case !time.Now().Before(c.until):
		return over
	case c.caller != nil && !c.asked.Swap(true):
		return c.caller.Done()
	}
	return c.Context.Done()
}

// Err implements [context.Context].
func (c *briefContext) Err() error {
	if err := c.Context.Err(); err != nil || time.Now().Before(c.until) {
		return err
	}
	return context.DeadlineExceeded
}
