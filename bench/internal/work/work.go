// Package work is what the workloads of several suites have in common: keys that are shared out
// among callers or in batches, and Onceward in each of its layouts. Failures are those of
// [must.Do].
package work

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/resp"
)

// Typical is the batch that the goals speak of.
const Typical = 256

// Batch does the work of a batch, by one of several workers.
type Batch func(ctx context.Context, worker int, keys []string)

// Callers runs one over all keys from n goroutines, in the keys' order, and measures each
// call.
func Callers(n int, one peer.Cycle) harness.Run {
	return Each(n, func(ctx context.Context, _ int, key string) { one(ctx, key) })
}

// Each is Callers whose calls know the goroutine that they are of.
func Each(n int, one func(ctx context.Context, worker int, key string)) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		var next atomic.Int64
		Parallel(ctx, n, func(ctx context.Context, worker int) {
			for i := next.Add(1) - 1; i < int64(len(t.Keys)); i = next.Add(1) - 1 {
				began := time.Now()
				one(ctx, worker, t.Keys[i])
				t.Latency[i] = max(time.Since(began), 1)
			}
		})
	}
}

// InBatches runs one over batches of size keys from n goroutines.
func InBatches(n, size int, one Batch) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		var next atomic.Int64
		Parallel(ctx, n, func(ctx context.Context, worker int) {
			for {
				end := int(next.Add(int64(size)))
				if end-size >= len(t.Keys) {
					return
				}
				one(ctx, worker, t.Keys[end-size:min(end, len(t.Keys))])
			}
		})
	}
}

// Parallel runs f n times; the first failure ends the others, and is that of Parallel.
func Parallel(ctx context.Context, n int, f func(ctx context.Context, worker int)) {
	if n == 1 {
		f(ctx, 0) // a lone caller has no goroutine to hand over to
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := must.Try(func() { f(ctx, i) }); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	must.Do(context.Cause(ctx))
}

// Raw is connections of the raw client, one per worker.
type Raw []*resp.Conn

// RawToken is an owner's token on the wire: 16 bytes, as ours.
const RawToken = "0123456789abcdef"

// DialRaw opens n connections for the time of a setup.
func DialRaw(ctx context.Context, s *harness.Setup, addr string, n int) (raw Raw) {
	for range n {
		c := resp.Dial(ctx, addr)
		s.Defer(c.Close)
		raw = append(raw, c)
	}
	return raw
}

// Cycle does a batch of new keys in two pipelines: the least that claim and completion can
// cost. value is what a finished key holds.
func (r Raw) Cycle(value string) Batch {
	return func(ctx context.Context, worker int, keys []string) {
		r[worker].ClaimNew(ctx, keys, RawToken, peer.Lease)
		r[worker].Complete(ctx, keys, RawToken, value, peer.Window)
	}
}
