package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

// wantLost waits for the cancellation of run and returns how long it took.
func wantLost(t testing.TB, run context.Context) time.Duration {
	t.Helper()
	start := time.Now()
	<-run.Done()
	assert.ErrorIs(t, context.Cause(run), lease.ErrLost)
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
			require.GreaterOrEqual(t, l.Remaining(), ttl/2)
			require.NoError(t, run.Err())
			_, err := c.Acquire(t.Context(), "job", ttl)
			require.ErrorIs(t, err, lease.ErrHeld, "while it is kept")
		}
		stop()
		stop()
		assert.ErrorIs(t, context.Cause(run), context.Canceled)
		time.Sleep(ttl)
		// the lease is not renewed any more, and the bubble checks that no goroutine is left
		acquire(t, c, "job", ttl)
	})
}

// TestKeepAliveOutlivesItsContext: when its context ends, the work is told to stop, but may take
// time. The lease is renewed until stop is called.
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
		<-run.Done()
		assert.ErrorIs(t, context.Cause(run), shutdown)
		time.Sleep(5 * ttl)
		_, err := c.Acquire(t.Context(), "job", ttl)
		require.ErrorIs(t, err, lease.ErrHeld, "long after the context's end")
	})
}

// TestKeepAliveLoses covers the ways to lose a lease. Each cancels run in time: at the next renewal
// if the server reports the loss, or before the lease ends if the server does not answer.
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
				assert.LessOrEqual(t, wantLost(t, run), lose.within)
				assert.LessOrEqual(t, l.Remaining(), time.Duration(0), "of a lost lease")
				stop()
			})
		})
	}
}

// TestKeepAliveBridgesAnOutage: a short outage does not lose the lease.
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
		assert.NoError(t, run.Err())
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
		stop()
		assert.Zero(t, time.Since(start))
	})
}

func TestKeepAliveOfALeaseThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		l := acquire(t, f.leases, "job", ttl)
		require.NoError(t, l.Release(t.Context()))
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
