package coalesce

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCoalescer compares a call through the coalescer with a bare call of the same store,
// which does nothing and allocates nothing. With several callers an operation is a hundred
// calls.
func BenchmarkCoalescer(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make([]answer, batchSize)
	nothing := func(_ context.Context, batch []question) []answer { return answers[:len(batch)] }
	b.Run("bare", func(b *testing.B) {
		send := nothing
		b.ReportAllocs()
		for b.Loop() {
			send(ctx, []question{{}})
		}
	})
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint("callers/", callers), func(b *testing.B) {
			c := newTestCoalescer(&batches{})
			c.ask = nothing
			benchmarkCallers(b, callers, func(n int64) { c.Do(ctx, numbered(int(n))) })
		})
	}
}

// benchmarkCallers has callers goroutines make the calls of b between them.
func benchmarkCallers(b *testing.B, callers int, call func(n int64)) {
	b.ReportAllocs()
	if callers == 1 {
		for b.Loop() {
			call(1)
		}
		return
	}
	var n atomic.Int64
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range work {
				for range 100 {
					call(n.Add(1))
				}
			}
		})
	}
	calls := 0
	for b.Loop() {
		work <- struct{}{}
		calls += 100
	}
	close(work)
	wg.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(calls), "ns/call")
}
