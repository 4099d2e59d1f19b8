// Package lazyctx has contexts that cost nothing until somebody waits for their end. A store in
// memory never waits for it, and few handlers do.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// Context ends with its parent, at its deadline, and with End. It makes a real context, of package
// context, only when that is needed. It is embedded by value where it is used, and not reused: a
// store or a handler may keep it.
type Context struct {
	Parent   context.Context //nolint:containedctx // it is a context itself
	Detached bool            // the parent's end is not ours: context.WithoutCancel
	Until    time.Time       // the deadline; zero for none

	mu     sync.Mutex
	made   context.Context //nolint:containedctx // the same
	cancel func(cause error)
	cause  error // of End
}

// End ends c with that cause, and releases what it holds. The first end counts, whether it is that
// of the parent or a call of End.
func (c *Context) End(cause error) {
	c.mu.Lock()
	if c.cause == nil && c.made == nil && c.parentEnded() {
		c.make()
	}
	if c.cause == nil {
		c.cause = cause
	}
	cancel, cause := c.cancel, c.cause
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// make returns the real context. The mutex is held.
func (c *Context) make() context.Context {
	switch {
	case c.made != nil:
	case c.cause != nil: // what the parent does later, and a later deadline, change nothing
		c.made, c.cancel = context.WithCancelCause(context.WithoutCancel(c.Parent))
		c.cancel(c.cause)
	case c.Until.IsZero():
		c.made, c.cancel = context.WithCancelCause(c.parent())
	default:
		made, stop := context.WithDeadline(c.parent(), c.Until)
		c.made, c.cancel = made, func(error) { stop() }
	}
	return c.made
}

func (c *Context) parentEnded() bool { return !c.Detached && c.Parent.Err() != nil }

// parent returns the context whose end also ends c.
func (c *Context) parent() context.Context {
	if c.Detached {
		return context.WithoutCancel(c.Parent)
	}
	return c.Parent
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	var d time.Time
	var ok bool
	if !c.Detached {
		d, ok = c.Parent.Deadline()
	}
	if c.Until.IsZero() || ok && d.Before(c.Until) {
		return d, ok
	}
	return c.Until, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make().Done()
}

// Err implements [context.Context]. Before it returns an error, it makes the real context, so that
// later calls return the same error.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil && c.cause == nil && !c.parentEnded() &&
		(c.Until.IsZero() || time.Now().Before(c.Until)) {
		return nil
	}
	return c.make().Err()
}

// Value implements [context.Context]. It asks the real context where there is one: that
// is how package context finds which children to cancel, and the cause.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	made := c.made
	c.mu.Unlock()
	if made != nil {
		return made.Value(key)
	}
	return c.Parent.Value(key)
}

// Timed is the context of a call that has a deadline, and that nobody but its own caller ends.
type Timed struct{ Context }

// WithTimeout is [context.WithTimeout]. End is its cancel function.
func WithTimeout(parent context.Context, timeout time.Duration) *Timed {
	return &Timed{Context{Parent: parent, Until: time.Now().Add(timeout)}}
}

// Caller returns the context without the deadline. With it a store can find out whether
// there is a caller that may leave before the deadline.
func (c *Timed) Caller() context.Context {
	if c.Detached {
		return context.Background() // it never ends
	}
	if outer, ok := c.Parent.(*Timed); ok {
		return outer.Caller()
	}
	return c.Parent
}

// Ends returns what ends ctx, without making a timer for the deadline of a [Timed]. gone is closed
// when the caller goes, or nil if it never does. until is the deadline; zero if gone covers it.
func Ends(ctx context.Context) (gone <-chan struct{}, until time.Time) {
	if c, ok := ctx.(*Timed); ok {
		until, _ = c.Deadline()
		return c.Caller().Done(), until
	}
	return ctx.Done(), time.Time{}
}
