package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/redisadapter"
)

func TestEveryKeyIsWorkedOnOnce(t *testing.T) {
	for name, run := range map[string]func(count func(string)) harness.Run{
		"callers": func(count func(string)) harness.Run {
			return Callers(7, func(_ context.Context, key string) { count(key) })
		},
		"batches": func(count func(string)) harness.Run {
			return InBatches(3, 16, func(_ context.Context, _ int, keys []string) {
				for _, key := range keys {
					count(key)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := harness.FreshKeys(100) // not a multiple of a batch
			counts := make(map[string]*atomic.Int32)
			for _, key := range keys {
				counts[key] = new(atomic.Int32)
			}
			timing := &harness.Timing{Keys: keys, Latency: make([]time.Duration, len(keys))}
			run(func(key string) { counts[key].Add(1) })(t.Context(), timing)
			for key, n := range counts {
				assert.Equal(t, int32(1), n.Load(), key)
			}
			for _, d := range timing.Latency {
				assert.Equal(t, name == "callers", d > 0)
			}
		})
	}
}

// A loop does as much as fills its budget. It does not allocate, because some goals are 0.
func TestLoop(t *testing.T) {
	s, next, most := &harness.Setup{}, uint64(0), uint64(0)
	Loop{Budget: time.Millisecond, Goroutines: 1, Most: 3000}.Side(s, "s", func() Job {
		return func(from, n uint64) {
			if from != next {
				panic("something is done again, or left out")
			}
			next, most = from+n, max(most, n)
		}
	})
	least := 1.0 // the runtime may allocate meanwhile
	for range 10 {
		sample := s.Sides[0].External(t.Context())
		assert.Positive(t, sample.Rate)
		least = min(least, sample.Allocs)
	}
	assert.Zero(t, least)
	assert.Equal(t, uint64(3000), most)
}

func TestAFailureEndsAllCallers(t *testing.T) {
	boom := errors.New("boom")
	run := Callers(4, func(ctx context.Context, key string) {
		if key == "bad" {
			must.Do(boom)
		}
		<-ctx.Done()
		must.Do(ctx.Err())
	})
	timing := &harness.Timing{Keys: []string{"a", "b", "bad", "c"},
		Latency: make([]time.Duration, 4)}
	require.ErrorIs(t, must.Try(func() { run(t.Context(), timing) }), boom)
}

// Buckets have as many keys as planned. Otherwise memory and CPU would be those of another plan.
func TestBucketsArePlanned(t *testing.T) {
	for _, l := range Layouts {
		l = l.Expecting(1234)
		o := l.options(5)
		assert.Equal(t, l.kind, o.Layout, l.Name)
		buckets := l.kind == redisadapter.Compact
		assert.Equal(t, map[bool]int{true: 1234}[buckets], o.ExpectedKeys, l.Name)
		assert.Equal(t, buckets, o.Window == 5, l.Name)
		assert.Equal(t, buckets, len(o.Secret) >= 16, l.Name)
		assert.NotEqual(t, redisadapter.DefaultPrefix, o.Prefix, l.Name)
		l.Prefix = "p"
		assert.Equal(t, "p", l.options(5).Prefix, l.Name)
	}
}

// Until asks until the answer is yes, its context ends, or minutes have passed.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Until(t.Context(), func(n int) bool { return n == 5 })
		assert.Equal(t, 5*time.Millisecond, time.Since(began))
		never, boom := func(int) bool { return false }, errors.New("boom")
		require.ErrorContains(t, must.Try(func() { Until(t.Context(), never) }), "in vain")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(boom)
		require.ErrorIs(t, must.Try(func() { Until(ctx, never) }), boom)
	})
}
