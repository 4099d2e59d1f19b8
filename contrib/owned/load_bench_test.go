package owned

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/internal/redistest"
)

// BenchmarkLoad loads a partition from its buckets.
func BenchmarkLoad(b *testing.B) {
	for _, keys := range loadSizes {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			back := redistest.Open(b, "redis")
			opts := setOptions(back.Prefix)
			opts.Window, opts.Hold, opts.ExpectedKeys = 100*time.Hour, 100*time.Hour, 2*keys
			o := takeLoaded(b, plainStore(b, back.Client, opts), somePartition)
			defer o.erase(b)
			began := time.Now()
			ids := idsOf(b, "k", keys)
			o.mark(b, ids)
			o.nextSet()
			o.mark(b, ids[:1])
			noErr(b, o.fold(b.Context()))
			b.Logf("marked and folded in %v", time.Since(began))
			for b.Loop() {
				o.feed.Store(o.filter.Load().Begin(bloom.Source{Name: o.sourceName(),
					Epoch: o.epoch}))
				noErr(b, o.load(b.Context()))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(keys), "ns/key")
			b.ReportMetric(float64(o.loading.members.Load()), "members")
		})
	}
}

// erase removes what a shared server would keep for days.
func (o *Ownership) erase(t testing.TB) {
	head := o.state(t)
	for gen, sets := range head.Gens {
		keys, err := o.loader().keys(gen, sets)
		noErr(t, err)
		for _, at := range keys {
			o.s.client.Unlink(t.Context(), at.key)
		}
	}
	o.s.client.Unlink(t.Context(), o.names.head)
}
