package lease_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/lease"
)

const ttl = 30 * time.Second

func open(t testing.TB, client redis.UniversalClient, opts lease.Options) *lease.Client {
	t.Helper()
	c, err := lease.New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func acquire(t testing.TB, c *lease.Client, key string, ttl time.Duration) *lease.Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), key, ttl)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: want %v, got %v", what, want, err)
	}
}

// TestLifeOfALease runs on every backend: whoever holds it holds it alone.
func TestLifeOfALease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := open(t, b.Client, lease.Options{Prefix: b.Prefix})
		first := acquire(t, c, "job", ttl)
		if first.Key() != "job" || first.Fence() == 0 || first.Remaining() <= ttl/2 {
			t.Fatalf("key %q, fence %d, remaining %v", first.Key(), first.Fence(), first.Remaining())
		}
		_, err := c.Acquire(t.Context(), "job", ttl)
		var held *lease.HeldError
		if wantErr(t, "a second Acquire", err, lease.ErrHeld); !errors.As(err, &held) || held.Remaining <= 0 || held.Remaining > ttl {
			t.Fatalf("held for %v", held)
		}
		acquire(t, c, "another job", ttl)
		wantErr(t, "Renew", first.Renew(t.Context()), nil)
		wantErr(t, "Release", first.Release(t.Context()), nil)
		wantErr(t, "Release again", first.Release(t.Context()), nil)
		if first.Remaining() > 0 {
			t.Errorf("a released lease remains for %v", first.Remaining())
		}
		second := acquire(t, c, "job", ttl)
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		wantErr(t, "Renew of a released lease", first.Renew(t.Context()), lease.ErrLost)
		wantErr(t, "Release of a lease that is another's now", first.Release(t.Context()), lease.ErrLost)
		wantErr(t, "Renew by the second owner", second.Renew(t.Context()), nil)
	})
}

// TestLapsedLease prevents an owner that was paused from renewing or releasing the lease
// of its successor.
func TestLapsedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{})
		first := acquire(t, c, "job", ttl)
		time.Sleep(ttl - time.Second)
		_, err := c.Acquire(t.Context(), "job", ttl)
		wantErr(t, "just before the end", err, lease.ErrHeld)
		if first.Remaining() <= 0 || first.Remaining() >= time.Second {
			t.Errorf("a second before the end %v remain", first.Remaining())
		}
		time.Sleep(time.Second)
		if first.Remaining() > 0 {
			t.Errorf("at the end %v remain", first.Remaining())
		}
		wantErr(t, "Renew of a lapsed lease that nobody wanted", first.Renew(t.Context()), nil)
		time.Sleep(ttl)
		second := acquire(t, c, "job", ttl)
		wantErr(t, "Renew by a late owner", first.Renew(t.Context()), lease.ErrLost)
		wantErr(t, "Release by a late owner", first.Release(t.Context()), lease.ErrLost)
		wantErr(t, "Renew by the owner", second.Renew(t.Context()), nil)
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
	})
}

// TestFenceGrows across release, lapse, and everything that Redis has forgotten.
func TestFenceGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini, client := redistest.Bubble(t)
		c := open(t, client, lease.Options{Hold: time.Second})
		last := uint64(0)
		for turn := range 20 {
			l := acquire(t, c, "job", ttl)
			if l.Fence() <= last {
				t.Fatalf("turn %d: fence %d after %d", turn, l.Fence(), last)
			}
			last = l.Fence()
			switch turn % 4 {
			case 0:
				wantErr(t, "Release", l.Release(t.Context()), nil)
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

// TestOneHolderAtATime lets many contend.
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
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d holders", n)
					}
					if last := fence.Swap(int64(l.Fence())); int64(l.Fence()) <= last {
						t.Errorf("fence %d after %d", l.Fence(), last)
					}
					held.Add(1)
					holders.Add(-1)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		all.Wait()
		if held.Load() == 0 {
			t.Error("nobody ever held it")
		}
	})
}
