package coalesce

import (
	"context"
	"sync"
	"time"
)

// callContext is a context.WithDeadline that costs nothing until somebody waits for its
// end: a store in memory never does. It ends with its parent, at its deadline, and with
// end. It is embedded by value where it is used, and not reused: a store may keep it.
type callContext struct {
	context.Context // the parent
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context // made when first needed
	cancel context.CancelFunc
	over   bool
}

// Caller returns the context without the deadline. With it a store can find out whether
// there is a caller that may leave before the deadline.
func (c *callContext) Caller() context.Context { return c.Context }

// end releases what the context holds.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

// made returns the real context. The mutex is held.
func (c *callContext) made() context.Context {
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.over {
			c.cancel()
		}
	}
	return c.timed
}

// Deadline implements [context.Context].
func (c *callContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// Done implements [context.Context].
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

// Err implements [context.Context]. Once it is not nil, the real context has been made,
// so that Err never takes an answer back.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil && !c.over && c.Context.Err() == nil && time.Now().Before(c.deadline) {
		return nil
	}
	return c.made().Err()
}

// Value implements [context.Context]. It asks the real context where there is one: that
// is how package context finds which children to cancel, and the cause.
func (c *callContext) Value(key any) any {
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.Context.Value(key)
}
