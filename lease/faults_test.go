package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

// faults is a client whose requests and replies can be lost or delayed. It needs a bubble of
// testing/synctest.
type faults struct {
	t      *testing.T
	mini   *miniredis.Miniredis
	leases *lease.Client
	healed chan struct{}

	mu        sync.Mutex
	hanging   bool
	dropNext  int           // replies to lose, after the server has executed the request
	lateNext  time.Duration // delay of the next reply
	pipelines int

	lateAlways time.Duration // delay of every reply
}

func newFaults(t *testing.T) *faults {
	mini, client := redistest.Bubble(t)
	f := &faults{t: t, mini: mini, healed: make(chan struct{})}
	client.AddHook(f)
	f.leases = open(t, client, lease.Options{})
	return f
}

// hang lets every request from now on wait until heal.
func (f *faults) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hanging = true
}

func (f *faults) heal() { close(f.healed) }

// acquire takes the lease for another owner.
func (f *faults) acquire(key string) { acquire(f.t, f.leases, key, ttl) }

func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook treats a lone command as a pipeline of one.
func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	pipeline := f.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
		return next(ctx, cmds[0])
	})
	return func(ctx context.Context, cmd redis.Cmder) error {
		return pipeline(ctx, []redis.Cmder{cmd})
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f.mu.Lock()
		f.pipelines++
		hanging, drop, late := f.hanging, f.dropNext > 0, f.lateNext
		if drop {
			f.dropNext--
		}
		f.lateNext = 0
		f.mu.Unlock()
		if hanging {
			<-f.healed
		}
		err := next(ctx, cmds)
		time.Sleep(max(late, f.lateAlways))
		if !drop {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(io.ErrUnexpectedEOF)
			if c, ok := cmd.(*redis.Cmd); ok {
				c.SetVal(nil)
			}
		}
		return io.ErrUnexpectedEOF
	}
}

// TestLostReplies: when the reply to our own acquisition is lost, the lease must not be reported as
// another owner's.
func TestLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		acquire(t, f.leases, "warm up", ttl) // the scripts are known from here on
		for n := range 200 {
			key := fmt.Sprint("job ", n)
			f.dropNext = 1 + n%3
			l := acquire(t, f.leases, key, ttl)
			// The retry finds the lease and renews it, so all of it is left.
			require.Equal(t, ttl-ttl/100-2*time.Millisecond, l.Remaining(), "job %d", n)
			_, err := f.leases.Acquire(t.Context(), key, ttl)
			require.ErrorIs(t, err, lease.ErrHeld, "another Acquire")
			f.dropNext = n % 3
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// TestUnansweredAcquire: Acquire gives up after a few tries. Its error does not say ErrHeld.
func TestUnansweredAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		acquire(t, f.leases, "warm up", ttl)
		f.dropNext, f.pipelines = 1000, 0
		_, err := f.leases.Acquire(t.Context(), "job", ttl)
		assert.NotErrorIs(t, err, lease.ErrHeld)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, 4, f.pipelines)
		f.dropNext = 0
		time.Sleep(ttl)
		acquire(t, f.leases, "job", ttl)
	})
}

// TestLateAnswer: if a grant took longer than its ttl, the lease must not be used. A frozen server
// that was replaced still answers when it wakes up.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		acquire(t, f.leases, "warm up", ttl)
		f.lateNext = ttl
		l := acquire(t, f.leases, "job", ttl) // no other owner took it, so it was renewed
		assert.GreaterOrEqual(t, l.Remaining(), ttl/2)

		f.lateNext = 2 * ttl
		go func() {
			time.Sleep(ttl + ttl/2)
			f.acquire("late") // another owner takes the lapsed lease
		}()
		_, err := f.leases.Acquire(t.Context(), "late", ttl)
		require.ErrorIs(t, err, lease.ErrLost, "an answer after somebody else's lease began")
	})
}

// TestLateRenewal: a renewal that took longer than the ttl is an error, and can be repeated.
func TestLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		acquire(t, f.leases, "warm up", ttl)
		l := acquire(t, f.leases, "job", ttl)
		f.lateNext = ttl
		require.ErrorContains(t, l.Renew(t.Context()), "had ended")
		require.NoError(t, l.Renew(t.Context()), "nobody has taken it")
		assert.Positive(t, l.Remaining())

		f.lateAlways = ttl
		_, err := f.leases.Acquire(t.Context(), "other", ttl)
		require.ErrorContains(t, err, "granted too late")
	})
}

// TestCancelledAcquire: a canceled Acquire returns at once, whatever the server does.
func TestCancelledAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(t)
		defer f.heal()
		f.hang()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		start := time.Now()
		_, err := f.leases.Acquire(ctx, "job", ttl)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}
