package workload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/resp"
)

// runFunc is the Run of a side.
type runFunc = func(context.Context, *harness.Timing) error

// callers runs one over all keys from n goroutines, in the keys' order, and measures each
// call.
func callers(n int, one peer.Cycle) runFunc {
	return func(ctx context.Context, t *harness.Timing) error {
		var next atomic.Int64
		return parallel(ctx, n, func(ctx context.Context, _ int) error {
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

// inBatches runs one over batches of size keys from n goroutines.
func inBatches(n, size int, one func(ctx context.Context, worker int, keys []string) error) runFunc {
	return func(ctx context.Context, t *harness.Timing) error {
		var next atomic.Int64
		return parallel(ctx, n, func(ctx context.Context, worker int) error {
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

// parallel runs f n times; the first error ends the others and is returned.
func parallel(ctx context.Context, n int, f func(ctx context.Context, worker int) error) error {
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

// rawConns are connections of the raw client, one per worker.
type rawConns []*resp.Conn

func dialRaw(ctx context.Context, addr string, n int) (rawConns, error) {
	conns := make(rawConns, 0, n)
	for range n {
		c, err := resp.Dial(ctx, addr)
		if err != nil {
			conns.close()
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func (r rawConns) close() {
	for _, c := range r {
		_ = c.Close()
	}
}

// rawToken is an owner's token on the wire: 16 bytes, as ours.
const rawToken = "0123456789abcdef"

// cycle does a batch of new keys in two pipelines: the least that claim and completion can
// cost. value is what a finished key holds.
func (r rawConns) cycle(value string) func(context.Context, int, []string) error {
	return func(ctx context.Context, worker int, keys []string) error {
		if err := r[worker].ClaimNew(ctx, keys, rawToken, peer.Lease); err != nil {
			return err
		}
		return r[worker].Complete(ctx, keys, rawToken, value, peer.Window)
	}
}

// closing collects what a group has opened.
type closing []func()

func (c *closing) add(f func()) {
	if f != nil {
		*c = append(*c, f)
	}
}

func (c *closing) all() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
}
