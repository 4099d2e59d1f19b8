package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// KeepAlive renews the lease in the background, between a sixth and a third of its ttl
// after the last renewal, and returns the context to work under. That context is
// canceled with cause [ErrLost] as soon as the server says that the lease is somebody
// else's, or the lease ends without having been renewed (see [Lease.Remaining]). It
// follows ctx otherwise. Renewal continues after ctx has ended, because the work may still
// be running.
//
// stop ends the renewal, cancels the context and waits for the goroutine, which a renewal
// under way does not delay. Call it in any case, then Release; calling it again does
// nothing. On a lease that is lost or released the context is canceled from the start, and for
// a nil ctx, too, with an [*InputError] as cause.
func (l *Lease) KeepAlive(ctx context.Context) (run context.Context, stop context.CancelFunc) {
	if ctx == nil {
		run, refuse := context.WithCancelCause(context.Background())
		refuse(&InputError{"ctx", "is nil"})
		return run, func() {}
	}
	run, lose := context.WithCancelCause(ctx)
	if l.Remaining() <= 0 {
		lose(ErrLost)
		return run, func() {}
	}
	renewing, quit := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if l.renew(renewing) {
			lose(ErrLost)
		}
	})
	return run, func() {
		lose(context.Canceled)
		quit()
		running.Wait()
	}
}

// renew renews until ctx or the lease ends, and reports whether the lease has ended.
func (l *Lease) renew(ctx context.Context) (lost bool) {
	usual := backoff.Policy{Base: l.ttl / 3, Cap: l.ttl / 3, Kind: backoff.Equal}
	failed := backoff.Policy{Base: l.ttl / 20, Cap: l.ttl / 10, Kind: backoff.Equal}
	next := usual
	for {
		if backoff.Sleep(ctx, min(next.Delay(0, 0, nil), l.Remaining())) != nil {
			return false
		}
		left := l.Remaining()
		if left <= 0 {
			return true
		}
		err := l.renewWithin(ctx, left)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, ErrLost):
			return true
		case err != nil:
			next = failed
		default:
			next = usual
		}
	}
}

// renewWithin renews, but waits for the answer no longer than the lease lasts: whoever
// works under it must be told as soon as it ends.
func (l *Lease) renewWithin(ctx context.Context, left time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return l.Renew(ctx)
}
