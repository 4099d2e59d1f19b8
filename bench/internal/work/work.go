// Package work is what the workloads of several suites have in common: keys that are shared out
// among callers or in batches, and Onceward in each of its layouts.
package work

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/resp"
)

// Typical is the batch that the goals speak of.
const Typical = 256

// Batch does the work of a batch, by one of several workers.
type Batch func(ctx context.Context, worker int, keys []string) error

// Callers runs one over all keys from n goroutines, in the keys' order, and measures each
// call.
func Callers(n int, one peer.Cycle) harness.Run {
	return func(ctx context.Context, t *harness.Timing) error {
		var next atomic.Int64
		return Parallel(ctx, n, func(ctx context.Context, _ int) error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(t.Keys) {
					return nil
				}
				began := time.Now()
				if err := one(ctx, t.Keys[i]); err != nil {
					return err
				}
				t.Latency[i] = max(time.Since(began), 1)
			}
		})
	}
}

// InBatches runs one over batches of size keys from n goroutines.
func InBatches(n, size int, one Batch) harness.Run {
	return func(ctx context.Context, t *harness.Timing) error {
		var next atomic.Int64
		return Parallel(ctx, n, func(ctx context.Context, worker int) error {
			for {
				end := int(next.Add(int64(size)))
				if end-size >= len(t.Keys) {
					return nil
				}
				if err := one(ctx, worker, t.Keys[end-size:min(end, len(t.Keys))]); err != nil {
					return err
				}
			}
		})
	}
}

// Parallel runs f n times; the first error ends the others and is returned.
func Parallel(ctx context.Context, n int, f func(ctx context.Context, worker int) error) error {
	if n == 1 {
		return f(ctx, 0) // a lone caller has no goroutine to hand over to
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Raw is connections of the raw client, one per worker.
type Raw []*resp.Conn

// RawToken is an owner's token on the wire: 16 bytes, as ours.
const RawToken = "0123456789abcdef"

// DialRaw opens n connections for the time of a setup.
func DialRaw(ctx context.Context, s *harness.Setup, addr string, n int) (Raw, error) {
	var raw Raw
	for range n {
		c, err := resp.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		s.Defer(c.Close)
		raw = append(raw, c)
	}
	return raw, nil
}

// Cycle does a batch of new keys in two pipelines: the least that claim and completion can
// cost. value is what a finished key holds.
func (r Raw) Cycle(value string) Batch {
	return func(ctx context.Context, worker int, keys []string) error {
		if err := r[worker].ClaimNew(ctx, keys, RawToken, peer.Lease); err != nil {
			return err
		}
		return r[worker].Complete(ctx, keys, RawToken, value, peer.Window)
	}
}
