package redisadapter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// BenchmarkDeduper claims and completes batches of fresh keys through a Deduper. Divide
// the allocations by the size: an operation is a whole batch.
func BenchmarkDeduper(b *testing.B) {
	const size = 256
	for _, seenOnly := range []bool{false, true} {
		for _, merged := range []bool{false, true} {
			b.Run(fmt.Sprintf("seenOnly=%t/merged=%t/size=%d", seenOnly, merged, size),
				func(b *testing.B) {
					d := newBenchDeduper(b, seenOnly)
					next, done := 0, []dedup.Completion(nil)
					perKey(b, size, func() {
						reqs := make([]dedup.Request, size)
						for i := range reqs {
							reqs[i] = dedup.Request{Key: fmt.Sprintf("%d-%d", b.N, next),
								Scope: b.Name(), Origin: driver.Origin{Source: "orders",
									Offset: int64(next)}}
							next++
						}
						done = cycle(b, d, done, reqs, merged)
					})
				})
		}
	}
}

func newBenchDeduper(b *testing.B, seenOnly bool) *dedup.Deduper {
	b.Helper()
	backend := redistest.Open(b, "redis")
	store, err := redisadapter.New(b.Context(), backend.Client,
		redisadapter.Options{Prefix: backend.Prefix})
	if err != nil {
		b.Fatal(err)
	}
	d, err := dedup.New(store, dedup.Config{
		Namespace: "bench", Window: time.Minute, LeaseTTL: 10 * time.Second, Hold: 10 * time.Second,
		SeenOnly: seenOnly,
	})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// cycle claims reqs and completes them, or, merged, what the call before has claimed.
func cycle(b *testing.B, d *dedup.Deduper, done []dedup.Completion, reqs []dedup.Request,
	merged bool) []dedup.Completion {
	b.Helper()
	ctx := context.Background()
	var claims []*dedup.Claim
	var errs []error
	var err error
	if merged {
		errs, claims, err = d.CompleteAndClaim(ctx, done, reqs)
	} else {
		claims, err = d.ClaimBatch(ctx, reqs)
	}
	if err != nil || errs != nil {
		b.Fatal(err, errs)
	}
	done = make([]dedup.Completion, len(claims))
	for i, c := range claims {
		if c.Outcome != dedup.Acquired {
			b.Fatal(c.Outcome, c.Err())
		}
		done[i].Claim = c
	}
	if merged {
		return done
	}
	if errs := d.CompleteBatch(ctx, done); errs != nil {
		b.Fatal(errs)
	}
	return nil
}
