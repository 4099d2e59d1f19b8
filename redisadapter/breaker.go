package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ErrBreakerOpen: the last calls have not reached the server, so this one was not sent.
// It is the error of an item, which is Unknown; asking again later is safe.
var ErrBreakerOpen = wire.ErrBreakerOpen

const (
	// defaultMaxInFlight is the bound of pipelines under way.
	defaultMaxInFlight = 64
	// defaultBreakerAfter is how many calls in a row must fail to reach the server.
	defaultBreakerAfter = 8

	// endsWhileOpen is how many completions and renewals are tried at once while the
	// breaker is open.
	endsWhileOpen = 2
	// patience is how long a call must have waited before its deadline counts against
	// the server and not against the caller.
	patience = 100 * time.Millisecond
)

// breakerWait is how long the breaker stays open: 125-250 ms, then 250-500 ms. A probe costs a
// server nothing, and until it comes back nobody works. It must also be short next to the second
// for which go-redis refuses to dial: a probe that meets this would wait once more.
var breakerWait = backoff.Policy{Base: 250 * time.Millisecond, Cap: 500 * time.Millisecond,
	Kind: backoff.Equal}

// purpose tells calls that begin work from those that end it, or keep it alive. Behind
// those stands an effect that has begun: they matter more.
type purpose uint8

const (
	begins purpose = iota // Claim, Lookup, Forget
	ends                  // Finish, Renew
)

// breaker fails calls at once while the server cannot be reached.
//
// Closed until limit calls in a row have failed to reach the server. Then open for a
// jittered time; after it one call, of either purpose, is let through as a probe, and
// the others still fail. Whoever learns that the server answers closes it; a probe that
// fails opens it for longer. While open up to endsWhileOpen completions or renewals are
// let through at once: they cannot be a storm, and each may save an effect's record.
type breaker struct {
	limit int
	now   func() time.Time

	mu       sync.Mutex
	failures int       // in a row
	trips    int       // times it opened since a success
	until    time.Time // zero: closed
	probing  bool
	ends     int // let through while open
}

// pass is the permission for one call.
type pass struct{ probe, end bool }

// enter permits a call, or says why not.
func (b *breaker) enter(why purpose) (pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return pass{}, nil
	}
	left := b.until.Sub(b.now())
	switch {
	case left <= 0 && !b.probing:
		b.probing = true
		return pass{probe: true}, nil
	case why == ends && b.ends < endsWhileOpen:
		b.ends++
		return pass{end: true}, nil
	case b.probing:
		return pass{}, fmt.Errorf("%w: one call is trying whether the server answers",
			ErrBreakerOpen)
	}
	return pass{}, fmt.Errorf(
		"%w: the server could not be reached %d times in a row; next try in %v",
		ErrBreakerOpen, b.failures, left.Round(time.Millisecond))
}

// verdict is what a call has learned about the server.
type verdict uint8

const (
	nothing  verdict = iota // the caller gave up, or nothing was sent
	answered                // a reply, also one that refuses
	silent                  // no reply
)

// leave takes back a permission.
func (b *breaker) leave(p pass, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
	}
	if p.end {
		b.ends--
	}
	switch v {
	case answered:
		b.failures, b.trips, b.until = 0, 0, time.Time{}
	case silent:
		b.failures++
		// A call from before it opened, or a completion let through, does not prolong it.
		if p.probe || b.until.IsZero() && b.failures >= b.limit {
			b.until = b.now().Add(breakerWait.Delay(b.trips, 0, nil))
			b.trips++
		}
	}
}

// open reports whether calls fail at once.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero()
}

// call asks the breaker, makes one call of the store, and tells the breaker what its
// errors say about the server. A refusal is the error that every item has then.
func (s *Store) call(why purpose, do func(), errs func(yield func(error) bool)) error {
	if s.withheld.Load() {
		return s.withheldError()
	}
	if s.opts.BreakerAfter < 0 {
		do()
		return nil
	}
	p, err := s.breaker.enter(why)
	if err != nil {
		return err
	}
	v := nothing // also when do panics
	defer func() { s.breaker.leave(p, v) }()
	start := time.Now()
	do()
	v = judge(time.Since(start), errs)
	return nil
}

// errNoRoom: Options.MaxInFlight batches were under way until the context ended.
var errNoRoom error = wire.NotSentError("too many batches are under way")

// rooms bound how many pipelines are under way, those that were left behind when their
// context ended included. Calls that begin work must also find room in the smaller one,
// so that they never keep those out that end it.
type rooms struct{ all, first chan struct{} }

func newRooms(n int) rooms {
	return rooms{all: make(chan struct{}, n), first: make(chan struct{}, max(1, n-n/4))}
}

// enter waits for room, or for the end of ctx. leave gives it back.
func (r *rooms) enter(ctx context.Context, why purpose) error {
	if ctx.Err() != nil {
		return wire.Cause(ctx)
	}
	if why == begins {
		if err := r.take(ctx, r.first); err != nil {
			return err
		}
	}
	err := r.take(ctx, r.all)
	if err != nil && why == begins {
		<-r.first
	}
	return err
}

// take asks for the end of ctx only when there is no room: that may make a timer.
func (r *rooms) take(ctx context.Context, room chan struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	default:
	}
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%d): %w", errNoRoom, cap(r.all), wire.Cause(ctx))
	}
}

func (r *rooms) leave(why purpose) {
	<-r.all
	if why == begins {
		<-r.first
	}
}

// send makes one pipeline and returns when ctx ends, or at the latest nearPatience after.
func (s *Store) send(ctx context.Context, why purpose, calls []redisscript.Call,
	after []redis.Cmder, last func() []redis.Cmder) ([]redisscript.Reply, error) {
	small := len(calls)+len(after) <= nearCommands
	if small && s.near.may() {
		if err := s.rooms.enter(ctx, why); err != nil {
			return nil, err
		}
		if replies, sent := s.sendNear(ctx, why, calls, after, last); sent {
			return replies, nil
		}
		if passed(ctx) {
			return nil, context.DeadlineExceeded
		}
	}
	start := time.Now()
	replies, err := s.inRoom(ctx, why, func() []redisscript.Reply {
		return s.runner.Send(ctx, calls, after, last)
	})
	if err == nil && small {
		s.near.note(time.Since(start))
	}
	return replies, err
}

// sendNear is near.send for a caller that has found room.
func (s *Store) sendNear(ctx context.Context, why purpose, calls []redisscript.Call,
	after []redis.Cmder, last func() []redis.Cmder) ([]redisscript.Reply, bool) {
	defer s.rooms.leave(why)
	return s.near.send(ctx, s.runner, calls, after, last)
}

// inRoom sends and returns at the latest when ctx ends: go-redis by itself reads on until
// its ReadTimeout. The pipeline is then left behind in its goroutine, keeps its room until
// the client's own timeouts end it, and must not touch what the caller uses afterwards.
func (s *Store) inRoom(ctx context.Context, why purpose,
	send func() []redisscript.Reply) ([]redisscript.Reply, error) {
	if err := s.rooms.enter(ctx, why); err != nil {
		return nil, err
	}
	if s.near.timed(ctx) || ctx.Done() == nil {
		defer s.rooms.leave(why)
		return send(), nil
	}
	done := make(chan []redisscript.Reply, 1)
	go func() {
		defer s.rooms.leave(why)
		done <- send()
	}()
	select {
	case replies := <-done:
		return replies, nil
	case <-ctx.Done():
		return nil, wire.Cause(ctx)
	}
}

// judge is what the errors of a batch say about the server. One that answers a part is
// there: on a Cluster the breaker is for the whole, so that a master that is down does
// not keep the others from working.
func judge(took time.Duration, errs func(yield func(error) bool)) verdict {
	v := nothing
	for err := range errs {
		switch judgeOne(took, err) {
		case answered:
			return answered
		case silent:
			v = silent
		}
	}
	return v
}

func judgeOne(took time.Duration, err error) verdict {
	if err == nil {
		return answered
	}
	var bad *dedup.InputError
	switch {
	case errors.As(err, &bad), errors.Is(err, errNoRoom), errors.Is(err, redis.ErrPoolTimeout),
		errors.Is(err, redis.ErrClosed):
		return nothing // not sent, or no fault of the server
	}
	switch wire.Classify(err) {
	case wire.ClassContext:
		if errors.Is(err, context.DeadlineExceeded) && took >= patience {
			return silent
		}
		return nothing
	case wire.ClassTimeout, wire.ClassNetwork:
		return silent
	}
	return answered
}
