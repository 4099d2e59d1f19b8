package work

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/dedup"
)

// inMemory is a Deduper with a store in this process, so that only our own code is measured.
func inMemory(b *testing.B, keys int, with ...func(*dedup.Config)) *Deduper {
	b.Helper()
	cfg := dedup.Config{Namespace: "bench", Window: peer.Window, LeaseTTL: peer.Lease}
	for _, change := range with {
		change(&cfg)
	}
	d, err := dedup.New(dedup.Memory(keys+1), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close(b.Context()) })
	return &Deduper{d}
}

// BenchmarkDuplicate asks a store in this process for finished keys.
func BenchmarkDuplicate(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 16} {
		keys := harness.FreshKeys(n)
		o := inMemory(b, n, Cached)
		InBatches(1, Typical, o.Batch(New, nil))(b.Context(), &harness.Timing{Keys: keys})
		exact, claim := peer.NewMap(keys), o.One(Known)
		for _, side := range []struct {
			name string
			one  func(key string) bool
		}{
			{"map", exact.Seen},
			{"seen", func(key string) bool { return must.Get(o.Seen(b.Context(), key)) }},
			{"claim", func(key string) bool { claim(b.Context(), key); return true }},
		} {
			b.Run(fmt.Sprintf("side=%s/keys=%d", side.name, n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if !side.one(keys[i%n]) {
						b.Fatal("a finished key is not remembered")
					}
					i++
				}
			})
		}
	}
}

// BenchmarkCycle claims and completes new keys on a store in memory; an operation is a
// batch.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []int{1, 16, Typical} {
		b.Run(fmt.Sprintf("store=memory/batch=%d", size), func(b *testing.B) {
			const keys = 1 << 18
			o := inMemory(b, keys)
			fresh := harness.FreshKeys(keys)
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				if at+size > len(fresh) {
					b.StopTimer()
					o, fresh, at = inMemory(b, keys), harness.FreshKeys(keys), 0
					b.StartTimer()
				}
				o.Batch(New, nil)(b.Context(), 0, fresh[at:at+size])
				at += size
			}
		})
	}
	b.Run(fmt.Sprintf("store=null/batch=%d", Typical), func(b *testing.B) {
		cycleAlone(b, Typical, false)
	})
	b.Run(fmt.Sprintf("store=null/kept=%d", Typical), func(b *testing.B) {
		cycleAlone(b, Typical, true)
	})
}

// cycleAlone claims and completes over a store that does nothing, by a caller that reuses
// its slices, as a consumer does. So only the Deduper is measured. With kept, each claim is
// kept alive in between.
func cycleAlone(b *testing.B, size int, kept bool) {
	d, err := dedup.New(new(nullStore),
		dedup.Config{Namespace: "bench", Window: peer.Window, LeaseTTL: peer.Lease})
	if err != nil {
		b.Fatal(err)
	}
	keys := harness.FreshKeys(16 * size) // few, because the garbage collector scans them too
	reqs, ends := make([]dedup.Request, size), make([]dedup.Completion, size)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	cpu, at := harness.ProcessCPU(), 0
	for b.Loop() {
		for i := range reqs {
			reqs[i].Key = keys[(at+i)%len(keys)]
		}
		claims, err := d.ClaimBatch(b.Context(), reqs)
		if err != nil {
			b.Fatal(err)
		}
		for i, c := range claims {
			ends[i].Claim = c
			if kept {
				c.KeepAlive(ctx)
			}
		}
		if errs := d.CompleteBatch(b.Context(), ends); errs != nil {
			b.Fatal(errors.Join(errs...))
		}
		at += size
	}
	b.ReportMetric(float64(harness.ProcessCPU()-cpu)/float64(b.N)/float64(size), "cpu-ns/key")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(size), "ns/key")
	if err := d.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
