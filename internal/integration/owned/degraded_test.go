package owned_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestTortureDegraded: filters that are made for a tenth of the keys, and snapshots that are
// damaged all the time, cost only claims of the inner store.
func TestTortureDegraded(t *testing.T) {
	t.Parallel()
	cfg := twoSources(degradedSize.keys)
	cfg.Sources = cfg.Sources[:1]
	s := &cfg.Sources[0]
	inWindow := degradedSize.keys * int(s.Window/time.Second) / int(degradedSize.during/time.Second)
	s.ExpectedKeys = inWindow / int(s.Partitions) / 10
	s.MaxBytes = 4096
	seed, p := seedOf(t), degradedSize
	c := newConductor(t, cfg, seed, &p)
	c.strike = damage
	c.run(&p)
	c.judge(seed, &p.quota)
	assert.NotZero(t, c.h.counts.saturated, "no filter was ever too full")
	assert.NotZero(t, c.damaged, "no snapshot was ever damaged")
}

// damage spoils every snapshot, each in one of three ways.
func damage(c *conductor) {
	files, err := filepath.Glob(filepath.Join(snapshotDir(c.cfg.Dir, 0), "*.snapshot"))
	c.must(err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || len(text) == 0 {
			continue
		}
		c.must(err)
		at := c.rng.IntN(len(text))
		switch c.rng.IntN(3) {
		case 0:
			text[at] ^= 1 << c.rng.IntN(8)
		case 1:
			text = text[:at]
		default: // a snapshot of another partition, or an older one
			other, err := os.ReadFile(files[c.rng.IntN(len(files))])
			if err != nil {
				continue
			}
			text = other
		}
		c.must(os.WriteFile(name+".damaged", text, 0o600))
		until := time.Now().Add(time.Hour)
		c.must(os.Chtimes(name+".damaged", until, until))
		c.must(os.Rename(name+".damaged", name))
		c.damaged++
	}
}

// solo is one Store in this process.
type solo struct {
	t      *testing.T
	client *redis.Client
	opts   owned.Options
	store  *owned.Store
	dedup  *dedup.Deduper
	proven atomic.Int64
}

func newSolo(t *testing.T) *solo {
	server := servertest.Private(t, servertest.KindRedis)
	s := &solo{t: t, client: redis.NewClient(&redis.Options{Addr: server.Addr})}
	t.Cleanup(func() { _ = s.client.Close() })
	s.opts = owned.Options{
		Prefix: "solo", Secret: []byte(secret), Window: time.Hour, Hold: 10 * time.Second,
		Lease: time.Second, ExpectedKeys: 1000,
		Observer: dedup.Observer{Filtered: func(e dedup.Event) {
			if e.FilterAnswer == "new" {
				s.proven.Add(1)
			}
		}},
	}
	s.boot()
	s.open()
	return s
}

func (s *solo) must(err error) {
	s.t.Helper()
	require.NoError(s.t, err)
}

func (s *solo) boot() { s.t.Helper(); s.must(owned.Init(s.t.Context(), s.client, s.opts)) }

func (s *solo) open() {
	s.t.Helper()
	inner, err := redisadapter.New(s.t.Context(), s.client,
		redisadapter.Options{Prefix: "solo-inner", WrappedBy: owned.Name})
	s.must(err)
	s.store, err = owned.New(s.t.Context(), s.client, inner, s.opts)
	s.must(err)
	s.dedup, err = dedup.New(s.store, dedup.Config{
		Namespace: "solo", Window: s.opts.Window, Hold: s.opts.Hold,
		LeaseTTL: 300 * time.Millisecond, SeenOnly: true,
	})
	s.must(err)
	s.t.Cleanup(func() { _ = s.store.Close(context.Background()) })
}

// acquire waits until the lease of the previous owner has ended.
func (s *solo) acquire() (*owned.Ownership, error) {
	for {
		o, err := s.store.Acquire(s.t.Context(), owned.Partition{Source: "solo", Count: 1})
		var held *owned.HeldError
		if !errors.As(err, &held) || !pauseFor(s.t.Context(), 20*time.Millisecond) {
			return o, err
		}
	}
}

// loaded waits until the filter has every mark.
func (s *solo) loaded(o *owned.Ownership) {
	s.t.Helper()
	for i := 0; !o.Stats().Loaded; i++ {
		require.LessOrEqual(s.t, i, 1000, "the filter is not loaded: %v",
			context.Cause(o.Context()))
		require.NoError(s.t, o.Context().Err(), "the filter is not loaded: %v",
			context.Cause(o.Context()))
		pauseFor(s.t.Context(), 5*time.Millisecond)
	}
}

// claim claims n keys and returns all of the claims, whatever their outcome.
func (s *solo) claim(n int) []*dedup.Claim {
	s.t.Helper()
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = dedup.Request{Key: fmt.Sprint("key", i), Origin: driver.Origin{Source: "solo"}}
	}
	claims, err := s.dedup.ClaimBatch(s.t.Context(), reqs)
	s.must(err)
	return claims
}

// markAll claims n keys and marks those that it got.
func (s *solo) markAll(n int) {
	s.t.Helper()
	var done []dedup.Completion
	for _, c := range s.claim(n) {
		if c.Outcome == dedup.Acquired {
			done = append(done, dedup.Completion{Claim: c})
		}
	}
	for _, err := range s.dedup.CompleteBatch(s.t.Context(), done) {
		s.must(err)
	}
}

// remove deletes the keys of the partition whose names contain part.
func (s *solo) remove(part string) (n int) {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), tagOf("solo", "solo", 0)+":*").Result()
	s.must(err)
	for _, key := range keys {
		if strings.Contains(key, part) {
			n++
			s.must(s.client.Del(s.t.Context(), key).Err())
		}
	}
	return n
}

// TestAmnesia: a partition whose sets are lost, or all of whose data is lost, is refused. Until the
// loss is noticed, no key that was done is called new. After Boot the inner store is asked about
// every key.
func TestAmnesia(t *testing.T) {
	const keys = 300
	for _, gone := range []string{":f:", ":"} {
		t.Run("without "+gone, func(t *testing.T) {
			s := newSolo(t)
			o, err := s.acquire()
			s.must(err)
			s.loaded(o)
			s.markAll(keys)
			n := s.proven.Load()
			assert.EqualValues(t, keys, n, "%d of %d keys were proven new", n, keys)
			s.must(o.Release(t.Context()))
			require.NotZero(t, s.remove(gone), "there was nothing to lose")
			s.proven.Store(0)
			if o, err = s.acquire(); err == nil {
				s.claim(keys)
				for i := 0; o.Context().Err() == nil && i < 1000; i++ {
					pauseFor(t.Context(), 5*time.Millisecond)
				}
				assert.ErrorIs(t, context.Cause(o.Context()), owned.ErrAmnesia,
					"the partition ended")
				_ = o.Release(t.Context())
				_, err = s.acquire()
			}
			assert.ErrorIs(t, err, owned.ErrAmnesia, "Acquire")
			s.boot()
			o, err = s.acquire()
			require.NoError(t, err, "Acquire after Boot")
			s.loaded(o)
			s.claim(keys)
			n = s.proven.Load()
			assert.Zero(t, n, "%d keys were called new whose marks were lost", n)
		})
	}
}
