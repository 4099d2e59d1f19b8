package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/stretchr/testify/require"
)

// BenchmarkDo is what a call of Do costs over a store that costs nearly nothing.
func BenchmarkDo(b *testing.B) {
	d, err := dedup.New(dedup.Memory(1<<20), dedup.Config{
		Namespace: "bench", Window: time.Hour, LeaseTTL: time.Minute,
	})
	require.NoError(b, err)
	effect := func(context.Context) (struct{}, error) { return struct{}{}, nil }
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := dedup.Do(b.Context(), d, keys[n%len(keys)], effect); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
