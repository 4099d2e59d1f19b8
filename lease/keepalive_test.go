package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

// wantLost waits for the cancellation of run and returns how long it took.
func wantLost(t testing.TB, run context.Context) time.Duration {
	t.Helper()
	start := time.Now()
	<-run.Done()
	if cause := context.Cause(run); !errors.Is(cause, lease.ErrLost) {
		t.Errorf("cause %v", cause)
	}
	return time.Since(start)
}

func TestKeepAliveRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{})
		l := acquire(t, c, "job", ttl)
		run, stop := l.KeepAlive(t.Context())
		for range 100 {
			time.Sleep(ttl / 3)
			if left := l.Remaining(); left < ttl/2 || run.Err() != nil {
				t.Fatalf("%v remain, %v", left, run.Err())
			}
			_, err := c.Acquire(t.Context(), "job", ttl)
			wantErr(t, "while it is kept", err, lease.ErrHeld)
		}
		stop()
		stop()
		if !errors.Is(context.Cause(run), context.Canceled) {
			t.Errorf("stopped: cause %v", context.Cause(run))
		}
		time.Sleep(ttl)
		acquire(t, c, "job", ttl) // nobody renews any more; the bubble sees that no goroutine is left
	})
}

// TestKeepAliveOutlivesItsContext prevents a lease that ends while the work, told to stop,
// is still at it.
func TestKeepAliveOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{})
		l := acquire(t, c, "job", ttl)
		ctx, cancel := context.WithCancelCause(t.Context())
		run, stop := l.KeepAlive(ctx)
		defer stop()
		shutdown := errors.New("shutting down")
		cancel(shutdown)
		if <-run.Done(); !errors.Is(context.Cause(run), shutdown) {
			t.Errorf("cause %v", context.Cause(run))
		}
		time.Sleep(5 * ttl)
		_, err := c.Acquire(t.Context(), "job", ttl)
		wantErr(t, "long after the context's end", err, lease.ErrHeld)
	})
}

// TestKeepAliveLoses covers the ways to lose a lease. Each tells in time: at the next
// renewal when the server knows, before the server's end when nobody answers.
func TestKeepAliveLoses(t *testing.T) {
	usable := ttl - ttl/100 - 2*time.Millisecond
	for name, lose := range map[string]struct {
		break_ func(f *faults)
		within time.Duration
	}{
		"errors":    {func(f *faults) { f.mini.SetError("LOADING Redis is loading") }, usable},
		"silence":   {func(f *faults) { f.hang() }, usable},
		"forgotten": {func(f *faults) { f.mini.FlushAll() }, ttl/3 + time.Second},
		"foreign":   {func(f *faults) { f.mini.FlushAll(); f.acquire("job") }, ttl/3 + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaults(t)
				defer f.heal()
				l := acquire(t, f.leases, "job", ttl)
				run, stop := l.KeepAlive(t.Context())
				lose.break_(f)
				if took := wantLost(t, run); took > lose.within {
					t.Errorf("told after %v, want at most %v", took, lose.within)
				}
				if l.Remaining() > 0 {
					t.Errorf("%v remain of a lost lease", l.Remaining())
				}
				stop()
			})
		})
	}
}

// TestKeepAliveBridgesAnOutage keeps a lease through a short one.
func TestKeepAliveBridgesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		l := acquire(t, f.leases, "job", ttl)
		run, stop := l.KeepAlive(t.Context())
		defer stop()
		for range 20 {
			time.Sleep(ttl / 2)
			f.mini.SetError("LOADING Redis is loading")
			time.Sleep(ttl / 4)
			f.mini.SetError("")
		}
		if run.Err() != nil {
			t.Errorf("lost: %v", context.Cause(run))
		}
	})
}

func TestStopDoesNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		defer f.heal()
		l := acquire(t, f.leases, "job", ttl)
		_, stop := l.KeepAlive(t.Context())
		f.hang()
		time.Sleep(ttl / 2) // a renewal is under way
		start := time.Now()
		if stop(); time.Since(start) > 0 {
			t.Errorf("stop took %v", time.Since(start))
		}
	})
}

func TestKeepAliveOfALeaseThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		l := acquire(t, f.leases, "job", ttl)
		wantErr(t, "Release", l.Release(t.Context()), nil)
		run, stop := l.KeepAlive(t.Context())
		wantLost(t, run)
		stop()
		l = acquire(t, f.leases, "job", ttl)
		time.Sleep(ttl)
		run, stop = l.KeepAlive(t.Context())
		wantLost(t, run)
		stop()
	})
}
