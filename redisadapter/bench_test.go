package redisadapter_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
)

// BenchmarkCycle claims and completes batches of fresh keys, beside the bare commands a
// library could not go below: SET NX GET PX, then SET GET PX, in two pipelines. The time
// per operation is that of a whole batch; keys/s is what counts.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("scripts/%d", size), func(b *testing.B) {
			backend := redistest.Open(b, "redis")
			store := open(b, backend)
			reqs, ends := make([]dedup.ClaimRequest, size), make([]dedup.Change, size)
			perKey(b, size, func() {
				for i := range reqs {
					reqs[i] = dedup.ClaimRequest{Lease: 10 * time.Second, Hold: 10 * time.Second}
					_, _ = rand.Read(reqs[i].ID[:])
					_, _ = rand.Read(reqs[i].Token[:])
					ends[i] = dedup.Change{ID: reqs[i].ID, Token: reqs[i].Token, State: dedup.StateSucceeded, Window: 10 * time.Second}
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
				for _, args := range []redis.SetArgs{{Mode: "NX", Get: true, TTL: 20 * time.Second}, {Get: true, TTL: 10 * time.Second}} {
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

// BenchmarkDuplicate claims keys that are done: what most of a replay costs.
func BenchmarkDuplicate(b *testing.B) {
	const size = 256
	store := open(b, redistest.Open(b, "redis"))
	reqs := requests(0)
	store.Claim(b.Context(), reqs)
	store.Finish(b.Context(), changes(0, dedup.StateSucceeded))
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
