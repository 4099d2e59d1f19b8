// Package pause waits between two tries. Package internal/backoff has the same jitter, and
// other kinds. These lines repeat it because the core depends on the standard library alone.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jitter is full jitter: uniform in [0, min(most, base*2^n)]. See "Exponential Backoff And
// Jitter" in the AWS Architecture Blog.
func Jitter(base, most time.Duration, n int) time.Duration {
	ceiling := most
	if n < 30 && base<<n < most {
		ceiling = base << n
	}
	return rand.N(ceiling + 1)
}

// Sleep waits for d, or returns the cause when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
