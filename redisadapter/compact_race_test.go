package redisadapter_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// runner claims keys, runs their effects and completes them, like a consumer.
type runner struct {
	store *redisadapter.Store
	rnd   *rand.Rand
	// ran is called for every effect, between claim and completion.
	ran  func(n int)
	done func(n int, sent time.Time)
}

// work takes a batch and reports how many of its keys are done.
func (r *runner) work(t *testing.T, keys []int, window time.Duration) (finished int) {
	reqs := make([]driver.ClaimRequest, len(keys))
	for i, n := range keys {
		reqs[i] = request(n)
		reqs[i].Lease, reqs[i].Hold, reqs[i].LikelyDuplicate = time.Minute, time.Minute,
			r.rnd.IntN(4) == 0
		for b := range reqs[i].Token {
			reqs[i].Token[b] = byte(r.rnd.Uint32())
		}
	}
	asked := time.Now()
	var ends []driver.Finish
	var which []int
	for i, a := range r.store.Claim(t.Context(), reqs) {
		if !assert.NoError(t, a.Err, "claim") {
			continue
		}
		switch a.Outcome {
		case dedup.Duplicate:
			finished++
		case dedup.Acquired:
			r.ran(keys[i])
			end := done(keys[i], a)
			end.Token, end.Until, end.Window = reqs[i].Token, asked.Add(reqs[i].Lease), window
			ends, which = append(ends, end), append(which, keys[i])
		}
	}
	if len(ends) == 0 {
		return finished
	}
	sent := time.Now()
	for i, a := range r.store.Finish(t.Context(), ends) {
		assert.NoError(t, a.Err, "finish")
		assert.True(t, a.Held && a.Written, "finish: %+v", a)
		r.done(which[i], sent)
	}
	return finished
}

// shuffled returns the n keys from first on in a random order.
func (r *runner) shuffled(first, n int) []int {
	keys := r.rnd.Perm(n)
	for i := range keys {
		keys[i] += first
	}
	return keys
}

// TestOneEffectForEachKey: 64 workers of four processes race for the same keys until all are done.
// In every layout each effect runs once.
func TestOneEffectForEachKey(t *testing.T) {
	const keys, workers, batch = raceKeys, 64, 50
	for _, name := range redistest.Backends[1:] {
		b := redistest.Open(t, name)
		eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
			opts := layoutOptions(b.Prefix+"-"+layout.String(), layout)
			stores := make([]*redisadapter.Store, 4)
			for i := range stores {
				stores[i] = openWith(t, b, opts)
			}
			effects := make([]atomic.Int32, keys)
			var all sync.WaitGroup
			for w := range workers {
				r := &runner{
					store: stores[w%len(stores)], rnd: rand.New(rand.NewPCG(uint64(w), 1)),
					ran: func(n int) { effects[n].Add(1) }, done: func(int, time.Time) {},
				}
				all.Go(func() {
					order := r.shuffled(0, keys)
					for begin := 0; begin < keys && !t.Failed(); begin += batch {
						r.work(t, order[begin:begin+batch], time.Hour)
					}
				})
			}
			all.Wait()
			for n := range effects {
				assert.EqualValues(t, 1, effects[n].Load(), "effects of key %d", n)
			}
		})
	}
}

// TestEdgesOfGenerations is the same race around the begin of a generation. The processes have
// readings of the server's clock that are as wrong as their error allows. A second effect must not
// begin before the window has passed since the first was completed.
func TestEdgesOfGenerations(t *testing.T) {
	const keys, wave, workers = edgeKeys, 128, edgeWorkers
	window := 160 * time.Millisecond
	behind := []time.Duration{0, 10 * time.Millisecond, 35 * time.Millisecond,
		150 * time.Millisecond}
	t.Parallel()
	b := redistest.Open(t, "redis")
	opts := layoutOptions(b.Prefix, redisadapter.Compact)
	opts.Window = window
	stores := make([]*redisadapter.Store, len(behind))
	for i := range stores {
		stores[i] = openWith(t, b, opts)
	}
	ahead := serverAhead(t, b.Client)
	var mu sync.Mutex
	completed := make([]time.Time, keys)
	second := 0
	runners := make([]*runner, workers)
	for w := range runners {
		runners[w] = &runner{
			store: stores[w%len(stores)], rnd: rand.New(rand.NewPCG(uint64(w), 2)),
			ran: func(n int) {
				mu.Lock()
				defer mu.Unlock()
				ago := time.Since(completed[n])
				again := !completed[n].IsZero() && ago < window
				if !assert.False(t, again, "key %d runs again %v after it was completed", n, ago) {
					second++
				}
			},
			done: func(n int, sent time.Time) {
				mu.Lock()
				defer mu.Unlock()
				completed[n] = sent
			},
		}
	}
	for first := 0; first < keys && !t.Failed(); first += wave {
		// A moment before an edge, by the server's clock.
		now := time.Now().Add(ahead)
		next := now.Truncate(window).Add(window - time.Duration(first%30)*time.Millisecond)
		<-time.After(next.Sub(now))
		var all sync.WaitGroup
		for w, r := range runners {
			all.Go(func() {
				off := behind[w%len(behind)]
				redisadapter.SetClock(r.store, ahead-off, off+time.Millisecond)
				for _, begin := range []int{0, wave / 2, 0} {
					r.work(t, r.shuffled(first+begin, wave/2), window)
				}
			})
		}
		all.Wait()
	}
	t.Logf("%d second effects of %d keys", second, keys)
}

// serverAhead returns how far the server's clock is ahead of ours, by the fastest of 20 answers.
func serverAhead(t *testing.T, client redis.UniversalClient) time.Duration {
	t.Helper()
	ahead, shortest := time.Duration(0), time.Hour
	for range 20 {
		before := time.Now()
		at, err := client.Time(t.Context()).Result()
		took := time.Since(before)
		require.NoError(t, err)
		if took < shortest {
			ahead, shortest = at.Sub(before.Add(took/2)), took
		}
	}
	return ahead.Round(time.Millisecond)
}
