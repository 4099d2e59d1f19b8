package dedup

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDuplicate asks for a key that is done and cached: a redelivery that does not reach the
// store.
func BenchmarkDuplicate(b *testing.B) {
	d, err := New(Memory(1<<17),
		Config{Namespace: "bench", Window: time.Hour, LeaseTTL: time.Minute, CacheBytes: 1 << 24})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("order-%08d", i)
		if _, err := d.Mark(b.Context(), keys[i]); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	b.Run("seen", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			if seen, err := d.Seen(b.Context(), keys[n%len(keys)]); !seen || err != nil {
				b.Fatal(seen, err)
			}
		}
	})
	b.Run("claim", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			if c, err := d.Claim(b.Context(), keys[n%len(keys)]); err != nil ||
				c.Outcome != Duplicate {
				b.Fatal(c, err)
			}
		}
	})
}
