package redisadapter_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// BenchmarkCycle claims and completes batches of fresh keys, compared with the bare commands that a
// library cannot go below: SET NX GET PX, then SET GET PX, in two pipelines. The time per operation
// is that of a whole batch; keys/s is what counts.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("scripts/%d", size), func(b *testing.B) {
			backend := redistest.Open(b, "redis")
			store := open(b, backend)
			reqs, ends := make([]driver.ClaimRequest, size), make([]driver.Finish, size)
			perKey(b, size, func() {
				for i := range reqs {
					reqs[i] = driver.ClaimRequest{Lease: 10 * time.Second, Hold: 10 * time.Second}
					_, _ = rand.Read(reqs[i].ID[:])
					_, _ = rand.Read(reqs[i].Token[:])
					ends[i] = driver.Finish{ID: reqs[i].ID, Token: reqs[i].Token,
						State: driver.StateSucceeded, Window: 10 * time.Second}
				}
				for _, a := range store.Claim(b.Context(), reqs) {
					if a.Outcome != dedup.Acquired {
						b.Fatalf("%+v", a)
					}
				}
				for _, a := range store.Finish(b.Context(), ends) {
					if !a.Written {
						b.Fatalf("%+v", a)
					}
				}
			})
		})
		b.Run(fmt.Sprintf("bare/%d", size), func(b *testing.B) {
			backend := redistest.Open(b, "redis")
			keys := make([]string, size)
			perKey(b, size, func() {
				for i := range keys {
					keys[i] = backend.Prefix + rand.Text()[:22]
				}
				for _, args := range []redis.SetArgs{{Mode: "NX", Get: true, TTL: 20 * time.Second},
					{Get: true, TTL: 10 * time.Second}} {
					_, err := backend.Client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
						for _, key := range keys {
							p.SetArgs(b.Context(), key, "0123456789abcdef", args)
						}
						return nil
					})
					if args.Mode == "" && err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkDuplicate claims keys that are done, which is most of the work of a replay.
func BenchmarkDuplicate(b *testing.B) {
	const size = 256
	store := open(b, redistest.Open(b, "redis"))
	reqs := requests(0)
	store.Claim(b.Context(), reqs)
	store.Finish(b.Context(), changes(0, driver.StateSucceeded))
	perKey(b, size, func() {
		for _, a := range store.Claim(b.Context(), reqs) {
			if a.Outcome != dedup.Duplicate {
				b.Fatalf("%+v", a)
			}
		}
	})
}

func perKey(b *testing.B, size int, batch func()) {
	b.Helper()
	b.ReportAllocs()
	batches := 0
	start := time.Now()
	for b.Loop() {
		batch()
		batches++
	}
	b.ReportMetric(float64(batches*size)/time.Since(start).Seconds(), "keys/s")
}

// BenchmarkStream is one caller with a stream of messages. A part of them is redelivered within the
// next ten. Blocks of 100 messages run with the cache of finished keys and without it, in turn. An
// operation is one block of each kind.
func BenchmarkStream(b *testing.B) {
	for _, again := range []int{90, 50, 0} {
		b.Run(fmt.Sprintf("again=%d", again), func(b *testing.B) {
			store := open(b, redistest.Open(b, "redis"))
			with, without := newStream(b, store, again, 16<<20), newStream(b, store, again, 0)
			var on, off, ratios []float64
			for b.Loop() {
				off = append(off, without.block(b))
				on = append(on, with.block(b))
				ratios = append(ratios, off[len(off)-1]/on[len(on)-1])
			}
			b.ReportMetric(median(off), "off-ns/msg")
			b.ReportMetric(median(on), "on-ns/msg")
			b.ReportMetric(median(ratios), "off/on")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// stream makes keys, and handles the messages that have them.
type stream struct {
	d        *dedup.Deduper
	run      string
	again    int
	n, fresh int
}

func newStream(b *testing.B, store dedup.Store, again, cacheBytes int) *stream {
	b.Helper()
	d, err := dedup.New(store, dedup.Config{
		Namespace: "bench", Window: time.Minute, LeaseTTL: 10 * time.Second, CacheBytes: cacheBytes,
	})
	if err != nil {
		b.Fatal(err)
	}
	return &stream{d: d, run: rand.Text(), again: again}
}

// block handles 100 messages and returns the time for one, in nanoseconds.
func (s *stream) block(b *testing.B) float64 {
	b.Helper()
	start := time.Now()
	for i := range 100 {
		s.n++
		number, want := s.fresh-s.n%10, dedup.Duplicate
		if i*37%100 >= s.again || number < 1 {
			s.fresh++
			number, want = s.fresh, dedup.Acquired
		}
		c, err := s.d.Claim(b.Context(), fmt.Sprint(s.run, number))
		if err == nil && want == dedup.Acquired {
			err = c.Complete(b.Context(), nil)
		}
		if err != nil || c.Outcome != want {
			b.Fatalf("message %d: %+v, %v; want %v", s.n, c, err, want)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 100
}
