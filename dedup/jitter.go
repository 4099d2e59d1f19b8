package dedup

import (
	"context"
	"math/rand/v2"
	"time"
)

// jitter is full jitter: uniform in [0, min(most, base*2^n)]. See "Exponential Backoff And
// Jitter" in the AWS Architecture Blog. internal/backoff has it too, with the other kinds.
// These lines repeat it because this package imports the standard library alone.
func jitter(base, most time.Duration, n int) time.Duration {
	ceiling := most
	if n < 30 && base<<n < most {
		ceiling = base << n
	}
	return rand.N(ceiling + 1)
}

// sleep waits for d, or returns the cause when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
