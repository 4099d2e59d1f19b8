package redisadapter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// BenchmarkLone is one caller with one key at a time: claim, then complete. It is compared with the
// same two commands by go-redis, and with the store without a Deduper.
func BenchmarkLone(b *testing.B) {
	n := 0
	b.Run("deduper", func(b *testing.B) {
		d := newBenchDeduper(b, true)
		b.ReportAllocs()
		for b.Loop() {
			n++
			c, err := d.Claim(b.Context(), fmt.Sprint(b.Name(), n, time.Now().UnixNano()))
			if err != nil || c.Outcome != dedup.Acquired {
				b.Fatal(err)
			}
			if err := c.Complete(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, ctx := range map[string]context.Context{"cancellable": b.Context(),
		"background": context.Background()} {
		b.Run("store/ctx="+name, func(b *testing.B) {
			backend := redistest.Open(b, "redis")
			store, err := redisadapter.New(b.Context(), backend.Client,
				redisadapter.Options{Prefix: backend.Prefix})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				n++
				id, _ := driver.NewID("lone", b.Name(), fmt.Sprint(n, time.Now().UnixNano()))
				a := store.Claim(ctx,
					[]driver.ClaimRequest{{ID: id, Token: driver.Token{1}, Lease: 10 * time.Second,
						Hold: 10 * time.Second}})[0]
				if a.Outcome != dedup.Acquired {
					b.Fatalf("%+v", a)
				}
				f := store.Finish(ctx, []driver.Finish{{ID: id, Token: driver.Token{1},
					Fence: a.Record.Fence, Attempt: 1, State: driver.StateSucceeded,
					EffectApplied: true,
					Window:        time.Minute}})[0]
				if !f.Held {
					b.Fatalf("%+v", f)
				}
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		backend := redistest.Open(b, "redis")
		b.ReportAllocs()
		for b.Loop() {
			n++
			key := fmt.Sprint(backend.Prefix, n, time.Now().UnixNano())
			backend.Client.SetArgs(b.Context(), key, "0123456789abcdef",
				redis.SetArgs{Mode: "NX", Get: true, TTL: 20 * time.Second})
			backend.Client.SetArgs(b.Context(), key, "1",
				redis.SetArgs{Get: true, TTL: 20 * time.Second})
		}
	})
}
