// Package backoff computes how long to wait before trying again, and waits.
//
// Every loop of this module that waits uses it, so that a fleet of processes that
// met the same failure does not come back in step. The formulas are those of the
// AWS Architecture Blog, "Exponential Backoff and Jitter" (2015, updated 2023).
//
// Everything but [Sleep] is a pure function of its arguments: there is no state to
// reset and nothing to close. A loop keeps the attempt number and the last delay:
//
//	var prev time.Duration
//	for attempt := 0; ; attempt++ {
//		if err := try(ctx); err == nil {
//			return nil
//		}
//		prev = policy.Delay(attempt, prev, nil)
//		if err := backoff.Sleep(ctx, prev); err != nil {
//			return err
//		}
//	}
package backoff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Defaults of the zero [Policy].
const (
	DefaultBase = 100 * time.Millisecond
	DefaultCap  = 30 * time.Second
)

// Kind is the way in which jitter spreads a delay.
type Kind uint8

const (
	// Full waits rand(0, min(cap, base*2^attempt)). It spreads best and puts the least load on the
	// other side; a single wait may be close to zero.
	Full Kind = iota
	// Equal waits half of min(cap, base*2^attempt) and adds rand(0, that half): never less than
	// half of the full delay, for a server that must not be asked again at once.
	Equal
	// Decorrelated waits min(cap, rand(base, prev*3)): it grows from the last delay
	// instead of from the attempt number.
	Decorrelated
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Full:
		return "full"
	case Equal:
		return "equal"
	case Decorrelated:
		return "decorrelated"
	default:
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
}

// Policy says how delays grow and how they are spread. The zero value is full
// jitter from 100 ms up to 30 s. A Policy is a plain value, safe for concurrent use.
type Policy struct {
	// Base is the mean scale of the first delay. Default: [DefaultBase], or Cap where
	// that is set and smaller.
	Base time.Duration
	// Cap is the longest delay. Default: [DefaultCap], or Base where that is larger.
	Cap time.Duration
	// Kind of jitter. Default: [Full].
	Kind Kind
}

// Validate reports the field that makes p impossible: a negative Base or Cap, a
// Base above its Cap, or a Kind that does not exist. It returns nil for the zero
// value. Constructors that take a Policy call it.
func (p Policy) Validate() error {
	switch {
	case p.Base < 0:
		return fmt.Errorf("backoff: Base is negative: %v", p.Base)
	case p.Cap < 0:
		return fmt.Errorf("backoff: Cap is negative: %v", p.Cap)
	case p.Cap > 0 && p.Base > p.Cap:
		return fmt.Errorf("backoff: Base %v is above Cap %v", p.Base, p.Cap)
	case p.Kind > Decorrelated:
		return fmt.Errorf("backoff: unknown Kind %d", uint8(p.Kind))
	}
	return nil
}

// Delay returns how long to wait before trying again.
//
// Attempt counts the failures before this wait from zero: it is 0 for the first one.
// Prev is the delay returned before, and 0 the first time. Full and Equal look at
// attempt only, Decorrelated at prev only. Rnd is the source of randomness; nil is
// the global one of math/rand/v2, which is safe for concurrent use (a *rand.Rand of
// your own is not).
//
// The result is never negative, never above Cap, and does not overflow for any
// argument. A negative attempt counts as 0, and a prev outside of [Base, Cap] counts as the nearer
// end of that range. With a policy that Validate refuses, Delay uses the default of the bad field
// (for a Base above Cap: Cap as Base). A bad number that got past a constructor must not turn a
// waiting loop into a busy one.
func (p Policy) Delay(attempt int, prev time.Duration, rnd *rand.Rand) time.Duration {
	base, limit := p.bounds()
	switch p.Kind {
	case Equal:
		half := grow(base, limit, attempt) / 2
		return half + between(0, half, rnd)
	case Decorrelated:
		prev = min(max(prev, base), limit)
		return min(limit, between(base, triple(prev), rnd))
	default:
		return between(0, grow(base, limit, attempt), rnd)
	}
}

// bounds fills in the defaults; 0 < base <= limit.
func (p Policy) bounds() (base, limit time.Duration) {
	base, limit = p.Base, p.Cap
	if limit <= 0 {
		limit = max(DefaultCap, base)
	}
	if base <= 0 {
		base = DefaultBase
	}
	return min(base, limit), limit
}

// grow returns min(limit, base*2^attempt). Comparing with limit shifted right keeps
// the product from being formed when it would overflow; a shift by 63 or more makes
// the right side zero, which is below every base.
func grow(base, limit time.Duration, attempt int) time.Duration {
	attempt = max(attempt, 0)
	if base > limit>>uint(attempt) {
		return limit
	}
	return base << uint(attempt)
}

// triple returns 3*d, or the longest duration where that would overflow.
func triple(d time.Duration) time.Duration {
	if d > math.MaxInt64/3 {
		return math.MaxInt64
	}
	return 3 * d
}

// between returns a duration that is uniform over [low, high], both ends included.
// It counts in uint64 because high-low+1 does not fit an int64 when high is the
// longest duration and low is zero.
func between(low, high time.Duration, rnd *rand.Rand) time.Duration {
	width := uint64(high-low) + 1
	if rnd == nil {
		return low + time.Duration(rand.Uint64N(width))
	}
	return low + time.Duration(rnd.Uint64N(width))
}
