// Package line sends pipelines to the server: with a breaker in front, a bound on how many are
// under way, and no goroutine where none is needed.
package line

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Purpose tells calls that begin work from those that end it, or keep it alive. Calls that end work
// or keep it alive matter more, because their effect has begun.
type Purpose uint8

const (
	// Begins is for Claim, Lookup and Forget.
	Begins Purpose = iota
	// Ends is for Finish and Renew.
	Ends
)

// Line sends pipelines. It is safe for concurrent use.
type Line struct {
	Runner *redisscript.Runner
	// Withheld is why nothing is sent at all, or nil.
	Withheld atomic.Pointer[error]

	breaker breaker
	bound   bound
	fast    fastPath
}

// New returns a Line that has at most maxInFlight pipelines under way. After breakerAfter calls in
// a row that have not reached the server, the next ones fail at once; if breakerAfter is negative,
// they never do.
func New(runner *redisscript.Runner, maxInFlight, breakerAfter int) *Line {
	return &Line{Runner: runner, bound: newBound(maxInFlight),
		breaker: breaker{limit: breakerAfter, now: time.Now}}
}

// KeepsDeadlines sets whether the client keeps deadlines: small pipelines may then do without a
// goroutine. Call it before the first Send.
func (l *Line) KeepsDeadlines(yes bool) { l.fast.on = yes }

// BreakerOpen reports whether calls fail at once.
func (l *Line) BreakerOpen() bool { return l.breaker.open() }

// InFlight returns the number of pipelines under way.
func (l *Line) InFlight() int { return len(l.bound.all) }

// Call makes one call of the store, unless the breaker is open, and tells the breaker what its
// errors say about the server. If the breaker is open, every item gets the returned refusal as its
// error.
func (l *Line) Call(why Purpose, do func(), errs func(yield func(error) bool)) error {
	p, err := l.Enter(why)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // do panicked, which says nothing about the server
			errs = func(func(error) bool) {}
		}
		l.Leave(p, errs)
	}()
	do()
	returned = true
	return nil
}

// Enter asks for permission to make a call, which ends with Leave.
func (l *Line) Enter(why Purpose) (Pass, error) {
	if err := l.Withheld.Load(); err != nil {
		return Pass{}, *err
	}
	if l.breaker.limit < 0 {
		return Pass{}, nil
	}
	return l.breaker.enter(why)
}

// Leave ends a call whose items have these errors.
func (l *Line) Leave(p Pass, errs func(yield func(error) bool)) {
	if l.breaker.limit >= 0 {
		l.breaker.leave(p, learned(time.Since(p.start), errs))
	}
}

// Scripts sends scripts in one pipeline, or nothing if there are no scripts.
func (l *Line) Scripts(ctx context.Context, why Purpose,
	calls []redisscript.Call) ([]redisscript.Reply, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	return l.Bounded(ctx, why, func() []redisscript.Reply {
		return l.Runner.Send(ctx, calls, nil, nil)
	})
}

// Pipeline is what Send sends: scripts, plain commands, and the commands that Last makes.
type Pipeline struct {
	Calls []redisscript.Call
	Plain []redis.Cmder
	Last  func() []redis.Cmder
	// Once makes Send return ErrUnanswered where it would send the pipeline a second time.
	Once bool
}

// ErrUnanswered: a pipeline to be sent once was not answered in time.
var ErrUnanswered = errors.New("the server has not answered in time")

// Send makes one pipeline and returns when ctx ends, or at the latest fastPatience after that.
func (l *Line) Send(ctx context.Context, why Purpose, p Pipeline) ([]redisscript.Reply, error) {
	if err := l.bound.enter(ctx, why); err != nil {
		return nil, err
	}
	entered := true
	defer func() {
		if entered {
			l.bound.leave(why)
		}
	}()
	small := len(p.Calls)+len(p.Plain) <= fastCommands
	if small && l.fast.may() {
		var replies []redisscript.Reply
		start, brief := time.Now(), redisscript.Brief(ctx, fastPatience)
		if len(p.Calls) == 0 {
			l.Runner.Exec(brief, p.Plain, p.Last)
		} else {
			replies = l.Runner.Send(brief, p.Calls, p.Plain, p.Last)
		}
		switch {
		case inTime(replies, p.Plain):
			l.fast.note(time.Since(start))
			return replies, nil
		case passed(ctx):
			return nil, context.DeadlineExceeded
		case ctx.Err() != nil:
			return nil, wire.Cause(ctx)
		}
		l.fast.far()
		if p.Once {
			return nil, ErrUnanswered
		}
	}
	entered = false
	start := time.Now()
	replies, err := l.leaving(ctx, why, func() []redisscript.Reply {
		return l.Runner.Send(ctx, p.Calls, p.Plain, p.Last)
	})
	if err == nil && small {
		l.fast.note(time.Since(start))
	}
	return replies, err
}

// Bounded sends, and returns at the latest when ctx ends: go-redis itself would read until its
// ReadTimeout. The pipeline is then left behind in its goroutine, keeps its slot until the client's
// own timeouts end it, and must not touch what the caller uses afterwards.
func (l *Line) Bounded(ctx context.Context, why Purpose,
	send func() []redisscript.Reply) ([]redisscript.Reply, error) {
	if err := l.bound.enter(ctx, why); err != nil {
		return nil, err
	}
	return l.leaving(ctx, why, send)
}

// leaving does the work of Bounded for a caller that has entered the bound, and leaves the bound at
// its end.
func (l *Line) leaving(ctx context.Context, why Purpose,
	send func() []redisscript.Reply) ([]redisscript.Reply, error) {
	if l.fast.timed(ctx) || ctx.Done() == nil {
		defer l.bound.leave(why)
		return send(), nil
	}
	done := make(chan []redisscript.Reply, 1)
	go func() {
		defer l.bound.leave(why)
		done <- send()
	}()
	select {
	case replies := <-done:
		return replies, nil
	case <-ctx.Done():
		return nil, wire.Cause(ctx)
	}
}

// errNoRoom: Options.MaxInFlight batches were under way until the context ended.
var errNoRoom error = wire.NotSentError("too many batches are under way")

// bound limits how many pipelines are under way, including those that were left behind when their
// context ended. Calls that begin work also need a slot in first, which has fewer slots, so that
// they never keep out calls that end work.
type bound struct{ all, first chan struct{} }

func newBound(n int) bound {
	return bound{all: make(chan struct{}, n), first: make(chan struct{}, max(1, n-n/4))}
}

// enter waits for a slot, or for the end of ctx. leave gives it back.
func (b *bound) enter(ctx context.Context, why Purpose) error {
	if ctx.Err() != nil {
		return wire.Cause(ctx)
	}
	if why == Begins {
		if err := b.take(ctx, b.first); err != nil {
			return err
		}
	}
	err := b.take(ctx, b.all)
	if err != nil && why == Begins {
		<-b.first
	}
	return err
}

// take asks ctx for its Done channel only when no slot is free: that may make a timer.
func (b *bound) take(ctx context.Context, slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%d): %w", errNoRoom, cap(b.all), wire.Cause(ctx))
	}
}

func (b *bound) leave(why Purpose) {
	<-b.all
	if why == Begins {
		<-b.first
	}
}
