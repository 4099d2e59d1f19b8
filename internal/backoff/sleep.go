package backoff

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns nil after the whole of d and
// otherwise [context.Cause] of ctx, so that the reason given to a CancelCauseFunc
// reaches the caller. A context that has already ended wins over any d. A zero or
// negative d does not wait. Sleep starts no goroutine and leaves no timer behind.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
