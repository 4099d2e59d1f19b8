package retry

import (
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// Jitter is the way in which waits are spread, so that a thousand clients that failed together do
// not come back together. The three ways are those of the AWS Architecture Blog, "Exponential
// Backoff And Jitter" (2015, updated 2023).
type Jitter uint8

const (
	// Full waits rand(0, min(Cap, Base*2^n)) after n+1 failures. It spreads best and is the
	// default; a single wait may be close to zero.
	Full = Jitter(backoff.Full)
	// Equal waits half of min(Cap, Base*2^n) plus rand(0, that half), so never less than that half.
	Equal = Jitter(backoff.Equal)
	// Decorrelated waits min(Cap, rand(Base, 3*the wait before)).
	Decorrelated = Jitter(backoff.Decorrelated)
)

// String returns the name in lower case.
func (j Jitter) String() string { return backoff.Kind(j).String() }

// Backoff says how waits grow and how they are spread. The zero value is full jitter from 100 ms up
// to 30 s. It is a plain value without state.
type Backoff struct {
	// Base is the scale of the first wait. Default: [DefaultBase], or Cap where that is smaller.
	Base time.Duration
	// Cap is the longest wait. Default: [DefaultCap], or Base where that is larger.
	Cap time.Duration
	// Jitter spreads the waits. Default: [Full].
	Jitter Jitter
}

// Validate returns an error that names the field which makes b impossible: a negative Base or Cap,
// a Base above its Cap, an unknown Jitter. [Do] and [NewTransport] call it.
func (b Backoff) Validate() error {
	if err := b.policy().Validate(); err != nil {
		return fmt.Errorf("retry: Backoff: %w", err)
	}
	return nil
}

// Delay returns one wait. Failures is the number of failures before the last one: 0 after the first
// failure. Prev is the previous wait, and 0 at first; only Decorrelated uses it. The result is
// never negative, never above Cap and does not overflow. It draws from math/rand/v2 and may be
// called concurrently.
func (b Backoff) Delay(failures int, prev time.Duration) time.Duration {
	return b.policy().Delay(failures, prev, nil)
}

// least returns Base or its default, which is the shortest wait for an answer in flight.
func (b Backoff) least() time.Duration {
	base := b.Base
	if base == 0 {
		base = DefaultBase
	}
	if b.Cap > 0 {
		base = min(base, b.Cap)
	}
	return base
}

func (b Backoff) policy() backoff.Policy {
	return backoff.Policy{Base: b.Base, Cap: b.Cap, Kind: backoff.Kind(b.Jitter)}
}
