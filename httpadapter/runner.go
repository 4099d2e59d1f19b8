package httpadapter

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Runner makes the effect of a key happen once, and keeps its result. [Claimed] makes a Runner from
// a Deduper, for effects elsewhere; the Runner of package sqladapter keeps the record in the
// transaction of the effect.
//
// A Runner is safe for concurrent use. If it has a method Atomic() bool that returns true, effect
// and record are one transaction: a release undoes the effect, and Step and MarkIrreversible of
// package dedup do not work. A wrapper of such a Runner must have that method, too, or half of what
// a panicking handler has written is committed. If it has a method Namespace() string, that returns
// the namespace of its keys, so that logs and answers can name the ID of a record.
type Runner interface {
	// Run calls effect unless the key is done, and returns the result that is kept. The outcome is
	// Acquired for a result of this call, and Duplicate for a result of an earlier call. For a key
	// that is done without a result (an operator's Mark), it returns [dedup.ErrNoResult], or a nil
	// value. A Runner that has to begin again may call effect again, but never runs two calls at
	// the same time.
	//
	// If effect returns undo, the result is kept, and everything else that effect has done in the
	// Runner's transaction is undone. If effect returns an error, nothing is kept, the key is
	// released, and Run returns the error. A result of effect is never nil.
	//
	// All other errors are errors of [dedup.Do]. With ErrInFlight, Record.Remaining of the Result
	// is the time that is left of the lease, or zero if that is not known. Acknowledge when
	// [dedup.CanAck] returns true for the error. That does not mean that there is a value.
	Run(ctx context.Context, key string, effect Effect,
		opts ...dedup.Option) (dedup.Result[[]byte], error)
	// Window is how long a key is remembered; 0 means forever.
	Window() time.Duration
	// ResultLimit is the largest result that is kept, in bytes; 0 means that no result is kept.
	ResultLimit() int
}

func isAtomic(run Runner) bool {
	atomic, ok := run.(interface{ Atomic() bool })
	return ok && atomic.Atomic()
}

// Effect is what a [Runner] runs once; see [Runner].Run.
type Effect = func(ctx context.Context) (result []byte, undo bool, err error)

// Claimed returns the Runner that claims with d: one caller at a time runs an effect. The store of
// d knows nothing of the effects, so undo does nothing. Its level is Claimed: an effect can
// run again after a crash between the effect and its record. With Config.Resolve it is Asked.
//
// A nil d is an [*dedup.InputError]. A d with the Mode FailOpen is an error, too, because it would
// answer for an effect without a record, and so is a d with the Mode Observe, because it runs
// everything. With SeenOnly the Runner keeps no results, and its ResultLimit is 0. Such a Runner is
// for webhooks; [New] refuses it.
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

// Namespace returns the namespace of the Deduper; see [Runner].
func (c *claimed) Namespace() string { return c.d.Config().Namespace }

// Window implements [Runner].
func (c *claimed) Window() time.Duration { return c.window }

// ResultLimit implements [Runner].
func (c *claimed) ResultLimit() int { return c.limit }
