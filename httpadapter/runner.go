package httpadapter

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Runner has the effect of a key once, and keeps its result. [Claimed] makes one of a
// Deduper, for effects elsewhere; one of package sqladapter keeps the record in the
// transaction of the effect.
//
// A Runner is safe for concurrent use. One with a method Atomic() bool that answers true
// says that effect and record are one: what is released there leaves nothing behind, and
// Step and MarkIrreversible of package dedup do not work. A wrapper of such a Runner must have that
// method, too, or half of what a panicking handler has written is committed. One with a method
// Namespace() string says to which namespace its keys belong, so that logs and answers can name the
// ID of a record.
type Runner interface {
	// Run calls effect unless the key is done, and returns what was kept: its own value with the
	// outcome Acquired, or with Duplicate the value of an earlier call. A key that was done without
	// one (an operator's Mark) is dedup.ErrNoResult, or a nil value. effect may be called again
	// when the Runner had to begin anew, and never twice at a time.
	//
	// undo asks for the result to be kept, and for nothing else that effect has done. An
	// error of effect keeps nothing, releases the key and is returned. A result is never
	// nil.
	//
	// Errors are otherwise those of [dedup.Do]; with ErrInFlight, Record.Remaining of the
	// Result is what is left of the lease, and zero where that is not known. Acknowledge
	// when [dedup.CanAck] is true of the error, which does not say that there is a value.
	Run(ctx context.Context, key string, effect Effect,
		opts ...dedup.Option) (dedup.Result[[]byte], error)
	// Window is how long a key is remembered; 0 means forever.
	Window() time.Duration
	// ResultLimit is how many bytes of a result are kept at most; 0 says that none is.
	ResultLimit() int
}

func isAtomic(run Runner) bool {
	atomic, ok := run.(interface{ Atomic() bool })
	return ok && atomic.Atomic()
}

// Effect is what a [Runner] runs once; see there.
type Effect = func(ctx context.Context) (result []byte, undo bool, err error)

// Claimed returns the Runner that claims with d: one runner at a time, for effects that
// the store of d knows nothing of, so undo does nothing. Its level is Claimed, or Asked with
// Config.Resolve: an effect can run again after a crash between it and its record.
//
// A nil d is an [*dedup.InputError], and so is one with the Mode FailOpen, which would answer for
// an effect without a record, or Observe, which runs everything. With SeenOnly it
// keeps no results, and ResultLimit is 0: that is for webhooks, and [New] refuses it.
func Claimed(d *dedup.Deduper) (Runner, error) {
	if d == nil {
		return nil, &dedup.InputError{Field: "Deduper", Reason: "is nil"}
	}
	cfg := d.Config()
	switch cfg.Mode {
	case dedup.FailOpen:
		return nil, &dedup.InputError{Field: "Deduper",
			Reason: "has Config.Mode FailOpen, which runs effects without a record; a request is answered only after its record"}
	case dedup.Observe:
		return nil, &dedup.InputError{Field: "Deduper",
			Reason: "has Config.Mode Observe, which runs every duplicate and never fails for want of a record"}
	}
	run := &claimed{d: d, window: cfg.Window, limit: cfg.ResultLimit}
	if cfg.SeenOnly {
		run.limit = 0
	}
	return run, nil
}

type claimed struct {
	d      *dedup.Deduper
	window time.Duration
	limit  int
}

// Run implements [Runner].
func (c *claimed) Run(ctx context.Context, key string, effect Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	if effect == nil {
		return dedup.Result[[]byte]{}, &dedup.InputError{Field: "Effect", Reason: "is nil"}
	}
	return dedup.DoResult(ctx, c.d, key, func(ctx context.Context) ([]byte, error) {
		result, _, err := effect(ctx)
		return result, err
	}, opts...)
}

// Namespace is that of the Deduper; see [Runner].
func (c *claimed) Namespace() string { return c.d.Config().Namespace }

// Window implements [Runner].
func (c *claimed) Window() time.Duration { return c.window }

// ResultLimit implements [Runner].
func (c *claimed) ResultLimit() int { return c.limit }
