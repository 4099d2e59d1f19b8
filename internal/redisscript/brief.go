package redisscript

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// KeepsDeadlines reports whether a client stops waiting for a reply at the deadline of the
// context. By default a client reads on until its ReadTimeout.
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
// and at the latest after limit.
func Brief(ctx context.Context, limit time.Duration) context.Context {
	brief := &briefContext{Context: ctx, until: time.Now().Add(limit)}
	if c, ok := ctx.(interface{ Caller() context.Context }); ok {
		brief.caller = c.Caller()
	}
	return brief
}

// briefContext compares the clock with its deadline only when it is asked. It wakes no goroutine at
// its end, so it needs no timer. A client waits for its end only while it waits for a connection. A
// try that was not answered in time ends when the client asks whether to try again.
type briefContext struct {
	context.Context
	until time.Time
	// caller is the caller's context without its deadline, if it has a deadline, so that waiting
	// for its end needs no timer either.
	caller context.Context
	asked  atomic.Bool
}

// over is a closed channel.
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

// Done implements [context.Context]. A client calls Done first before it takes a connection, and
// again when it has to wait for a connection. Only in the second call does the deadline matter.
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
