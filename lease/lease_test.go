package lease_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

const ttl = 30 * time.Second

func open(t testing.TB, client redis.UniversalClient, opts lease.Options) *lease.Client {
	t.Helper()
	c, err := lease.New(client, opts)
	require.NoError(t, err)
	return c
}

func acquire(t testing.TB, c *lease.Client, key string, ttl time.Duration) *lease.Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), key, ttl)
	require.NoError(t, err)
	return l
}

// TestLifeOfALease runs on every backend. A lease has one owner at a time.
func TestLifeOfALease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := open(t, b.Client, lease.Options{Prefix: b.Prefix})
		first := acquire(t, c, "job", ttl)
		require.Equal(t, "job", first.Key())
		require.NotZero(t, first.Fence())
		require.Greater(t, first.Remaining(), ttl/2)
		_, err := c.Acquire(t.Context(), "job", ttl)
		var held *lease.HeldError
		require.ErrorIs(t, err, lease.ErrHeld, "a second Acquire")
		require.ErrorAs(t, err, &held)
		require.Positive(t, held.Remaining)
		require.LessOrEqual(t, held.Remaining, ttl)
		acquire(t, c, "another job", ttl)
		require.NoError(t, first.Renew(t.Context()))
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()), "Release again")
		assert.LessOrEqual(t, first.Remaining(), time.Duration(0), "a released lease remains")
		second := acquire(t, c, "job", ttl)
		assert.Greater(t, second.Fence(), first.Fence())
		require.ErrorIs(t, first.Renew(t.Context()), lease.ErrLost, "Renew of a released lease")
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrLost, "another's lease now")
		require.NoError(t, second.Renew(t.Context()), "Renew by the second owner")
	})
}

// TestLapsedLease: an owner that was paused must not renew or release the lease of the next owner.
func TestLapsedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{})
		first := acquire(t, c, "job", ttl)
		time.Sleep(ttl - time.Second)
		_, err := c.Acquire(t.Context(), "job", ttl)
		require.ErrorIs(t, err, lease.ErrHeld, "just before the end")
		assert.Positive(t, first.Remaining(), "a second before the end")
		assert.Less(t, first.Remaining(), time.Second)
		time.Sleep(time.Second)
		assert.LessOrEqual(t, first.Remaining(), time.Duration(0), "at the end")
		require.NoError(t, first.Renew(t.Context()), "Renew of a lapsed lease that nobody wanted")
		time.Sleep(ttl)
		second := acquire(t, c, "job", ttl)
		require.ErrorIs(t, first.Renew(t.Context()), lease.ErrLost, "Renew by a late owner")
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrLost, "Release by a late owner")
		require.NoError(t, second.Renew(t.Context()), "Renew by the owner")
		assert.Greater(t, second.Fence(), first.Fence())
	})
}

// TestFenceGrows: the fence grows across a release, a lapse, and the loss of all Redis data.
func TestFenceGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{Hold: time.Second})
		last := uint64(0)
		for turn := range 20 {
			l := acquire(t, c, "job", ttl)
			require.Greater(t, l.Fence(), last, "turn %d: fence", turn)
			last = l.Fence()
			switch turn % 4 {
			case 0:
				require.NoError(t, l.Release(t.Context()))
			case 1:
				time.Sleep(ttl) // lapsed, within its hold
			case 2:
				time.Sleep(ttl + time.Second) // forgotten
			case 3:
				time.Sleep(time.Millisecond)
				mini.FlushAll()
			}
		}
	})
}

// TestOneHolderAtATime lets many callers compete for one lease.
func TestOneHolderAtATime(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := open(t, b.Client, lease.Options{Prefix: b.Prefix})
		var holders, held, fence atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 15 {
					l, err := c.Acquire(t.Context(), "job", ttl)
					if errors.Is(err, lease.ErrHeld) {
						continue
					}
					if !assert.NoError(t, err) {
						return
					}
					assert.EqualValues(t, 1, holders.Add(1))
					assert.Greater(t, int64(l.Fence()), fence.Swap(int64(l.Fence())))
					held.Add(1)
					holders.Add(-1)
					assert.NoError(t, l.Release(t.Context()))
				}
			})
		}
		all.Wait()
		assert.NotZero(t, held.Load(), "nobody ever held it")
	})
}
