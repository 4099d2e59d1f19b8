package workload

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/dedup"
)

// local: duplicates that are answered in this process.
func (e *Env) local() []harness.Group {
	return []harness.Group{{
		Workload: "in-process", X: 1, Title: "duplicates answered in process", Open: e.openLocal,
	}}
}

// Sides that answer from memory.
const (
	exactSide = "exact map behind a mutex"
	claimSide = "onceward Claim, local cache"
	seenSide  = "onceward Seen, local cache"
)

// localKeys is how many finished keys are asked for.
const localKeys = 1 << 15

func (e *Env) openLocal(ctx context.Context) (harness.Setup, error) {
	keys := harness.FreshKeys(localKeys)
	o, err := plain().open(ctx, e.Server.Addr, 0, cached)
	if err != nil {
		return harness.Setup{}, err
	}
	fill := inBatches(workers, typical, o.cycles(nil))
	if err := fill(ctx, &harness.Timing{Keys: keys}); err != nil {
		o.close()
		return harness.Setup{}, err
	}
	exact := peer.NewMap(keys)
	return harness.Setup{
		Close: o.close,
		Sides: []harness.Side{
			e.benchmark(exactSide, keys, func(key string) error { return want(exact.Seen(key), key) }),
			e.benchmark(claimSide, keys, func(key string) error { return o.duplicate(ctx, key) }),
			e.benchmark(seenSide, keys, func(key string) error {
				seen, err := o.Seen(ctx, key)
				if err != nil {
					return err
				}
				return want(seen, key)
			}),
		},
		Pairs: localPairs(),
	}, nil
}

func localPairs() []harness.Pair {
	var pairs []harness.Pair
	for _, side := range []string{seenSide, claimSide} {
		goals := side == seenSide // Claim is for information: it makes a Claim besides
		call, _, _ := strings.Cut(strings.TrimPrefix(side, "onceward "), ",")
		name := "duplicates answered in process, " + call
		pairs = append(pairs,
			harness.Pair{Name: name, Side: side, Against: exactSide, Metric: harness.Nanos, Goal: when(goals, harness.ValueAtMost(150, 60, "ns"))},
			harness.Pair{Name: name + ", allocations", Side: side, Against: exactSide, Metric: harness.Allocs, Goal: when(goals, harness.ValueAtMost(0, 0, "allocations"))})
	}
	return pairs
}

// duplicate claims a key that is done.
func (o *ours) duplicate(ctx context.Context, key string) error {
	c, err := o.Claim(ctx, key)
	if err != nil {
		return err
	}
	if c.Outcome != dedup.Duplicate {
		return unexpected(key, c)
	}
	return nil
}

func want(seen bool, key string) error {
	if !seen {
		return fmt.Errorf("%s: is not remembered", key)
	}
	return nil
}

// initTesting lets testing.Benchmark run outside a test binary.
var initTesting = sync.OnceFunc(testing.Init)

// benchmark measures one with the testing package, over keys in turn.
func (e *Env) benchmark(name string, keys []string, one func(key string) error) harness.Side {
	return harness.Side{Name: name, External: func(context.Context) (harness.Sample, error) {
		initTesting()
		// A timing of less than this is mostly the first hit, which may look into the store.
		budget := max(e.Budget, 100*time.Millisecond)
		if err := flag.Set("test.benchtime", budget.String()); err != nil {
			return harness.Sample{}, err
		}
		var failure error
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := one(keys[i%len(keys)]); err != nil {
					failure = err
					b.FailNow()
				}
				i++
			}
		})
		if failure != nil || r.N == 0 || r.T <= 0 {
			return harness.Sample{}, fmt.Errorf("%s: %w", name, failure)
		}
		return harness.Sample{Rate: float64(r.N) / (float64(r.T) / float64(time.Second)), Allocs: float64(r.MemAllocs) / float64(r.N)}, nil
	}}
}
