package line

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// endsWhileOpen is how many completions and renewals are tried at once while the
	// breaker is open.
	endsWhileOpen = 2
	// patience is how long a call must have waited before its deadline counts against
	// the server and not against the caller.
	patience = 100 * time.Millisecond
)

// breakerWait is how long the breaker stays open: 125-250 ms, then 250-500 ms. A probe costs a
// server nothing, and nobody works until the server is back. The wait must also be short compared
// with the second for which go-redis refuses to dial: a probe that go-redis refuses to dial would
// have to wait once more.
var breakerWait = backoff.Policy{Base: 250 * time.Millisecond, Cap: 500 * time.Millisecond,
	Kind: backoff.Equal}

// breaker fails calls at once while the server cannot be reached.
//
// It is closed until limit calls in a row have failed to reach the server. Then it is open for a
// jittered time; after that it lets one call, of either purpose, through as a probe, and the others
// still fail. Any call that learns that the server answers closes it; a probe that fails opens it
// for longer. While it is open it lets up to endsWhileOpen completions or renewals through at once:
// they cannot be a storm, and each may save an effect's record.
type breaker struct {
	limit int
	now   func() time.Time

	mu       sync.Mutex
	failures int       // in a row
	openings int       // times it opened since a success
	until    time.Time // zero: closed
	probing  bool
	ends     int // let through while open
}

// Pass is the permission for one call.
type Pass struct {
	probe, end bool
	start      time.Time
}

// enter permits a call, or returns why not.
func (b *breaker) enter(why Purpose) (Pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return Pass{start: time.Now()}, nil
	}
	left := b.until.Sub(b.now())
	switch {
	case left <= 0 && !b.probing:
		b.probing = true
		return Pass{probe: true, start: time.Now()}, nil
	case why == Ends && b.ends < endsWhileOpen:
		b.ends++
		return Pass{end: true, start: time.Now()}, nil
	case b.probing:
		return Pass{}, fmt.Errorf("%w: one call is trying whether the server answers",
			wire.ErrBreakerOpen)
	}
	return Pass{}, fmt.Errorf(
		"%w: the server could not be reached %d times in a row; next try in %v",
		wire.ErrBreakerOpen, b.failures, left.Round(time.Millisecond))
}

// lesson is what a call has learned about the server.
type lesson uint8

const (
	nothing  lesson = iota // the caller gave up, or nothing was sent
	answered               // a reply, also one that refuses
	silent                 // no reply
)

// leave takes back a permission.
func (b *breaker) leave(p Pass, v lesson) {
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
		b.failures, b.openings, b.until = 0, 0, time.Time{}
	case silent:
		b.failures++
		// A call that began before the breaker opened, or a completion that was let through, does
		// not keep it open for longer.
		if p.probe || b.until.IsZero() && b.failures >= b.limit {
			b.until = b.now().Add(breakerWait.Delay(b.openings, 0, nil))
			b.openings++
		}
	}
}

// open reports whether calls fail at once.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero()
}

// learned is what the errors of a batch say about the server. One answered item is enough: a
// Cluster has one breaker for all masters, and a master that is down must not keep the others from
// working.
func learned(took time.Duration, errs func(yield func(error) bool)) lesson {
	v := nothing
	for err := range errs {
		switch learnedFrom(took, err) {
		case answered:
			return answered
		case silent:
			v = silent
		}
	}
	return v
}

func learnedFrom(took time.Duration, err error) lesson {
	if err == nil {
		return answered
	}
	var bad *driver.InputError
	switch {
	case errors.As(err, &bad), errors.Is(err, errNoRoom), errors.Is(err, redis.ErrPoolTimeout),
		errors.Is(err, redis.ErrClosed):
		return nothing // not sent, or not the server's fault
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
