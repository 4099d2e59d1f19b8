package redisbench

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
)

// Sides of a stream.
const (
	cacheOff = "onceward, no local cache"
	cacheOn  = "onceward, local cache"
)

// mode is how a stream is consumed.
type mode struct {
	workload, text string
	callers        int // 0: in batches
	goals          map[int]harness.Goal
}

// streams: a share of the keys are duplicates of recent ones; with and without the cache of
// finished keys in this process.
func (e *env) streams() []harness.Group {
	var groups []harness.Group
	for _, m := range []mode{
		{workload: "stream-1", text: "one caller", callers: 1, goals: map[int]harness.Goal{
			0: harness.AtLeast(0.95, 1), 50: harness.AtLeast(1.2, 1.5), 90: harness.AtLeast(5, 6),
		}},
		{workload: "stream-64", text: "64 callers", callers: 64},
		{workload: "stream-batch", text: fmt.Sprintf("batches of %d", work.Typical)},
	} {
		for _, share := range []int{0, 10, 50, 90} {
			title := fmt.Sprintf("stream with %d %% recent duplicates, %s", share, m.text)
			groups = append(groups, harness.Group{
				Workload: m.workload, X: float64(share), Title: title, Detail: share == 10 ||
					(m.callers != 1 && share != 50),
				Open: func(ctx context.Context, s *harness.Setup) {
					s.Pair(harness.Pair{Name: title + ", local cache", Side: cacheOn,
						Against: cacheOff, Text: "the same without", Goal: m.goals[share]})
					e.openStream(ctx, s, m, share)
				},
			})
		}
	}
	return groups
}

func (e *env) openStream(ctx context.Context, s *harness.Setup, m mode, share int) {
	callers := max(m.callers, 1)
	gap := 2 * callers
	s.Multiple = callers
	if m.callers == 0 {
		gap, s.Multiple = workers*work.Typical, workers*work.Typical
	}
	s.MinKeys = 10 * gap // the first gap has no duplicates
	s.Keys = func(n int) []string { return harness.Recent(n, share, gap) }
	for _, name := range []string{cacheOff, cacheOn} {
		d := plain().Open(ctx, s, e.redis.Addr, 0, func(c *dedup.Config) {
			if name == cacheOn {
				work.Cached(c)
			}
		})
		run := work.Callers(callers, d.One(work.Either))
		if m.callers == 0 {
			run = work.InBatches(workers, work.Typical, d.Batch(work.Either, nil))
		}
		s.Side(name, run)
	}
}

// Sides that answer from memory.
const (
	exactSide = "exact map behind a mutex"
	claimSide = "onceward Claim, local cache"
	seenSide  = "onceward Seen, local cache"
)

// localKeys is how many finished keys are asked for.
const localKeys = 1 << 15

// local: duplicates that are answered in this process.
func (e *env) local() []harness.Group {
	return []harness.Group{{Workload: "in-process", X: 1, Title: "duplicates answered in process",
		Open: e.openLocal}}
}

func (e *env) openLocal(ctx context.Context, s *harness.Setup) {
	keys := harness.FreshKeys(localKeys)
	d := plain().Open(ctx, s, e.redis.Addr, 0, work.Cached)
	work.InBatches(workers, work.Typical, d.Batch(work.New, nil))(ctx,
		&harness.Timing{Keys: keys})
	exact, claim := peer.NewMap(keys), d.One(work.Known)
	known := func(seen bool, key string) {
		if !seen {
			must.Do(fmt.Errorf("%s: is not remembered", key))
		}
	}
	s.Sides = []harness.Side{
		e.benchmark(exactSide, keys, func(key string) { known(exact.Seen(key), key) }),
		e.benchmark(claimSide, keys, func(key string) { claim(ctx, key) }),
		e.benchmark(seenSide, keys, func(key string) { known(must.Get(d.Seen(ctx, key)), key) }),
	}
	s.Pair(localPairs()...)
}

func localPairs() (pairs []harness.Pair) {
	for _, side := range []string{seenSide, claimSide} {
		goals := side == seenSide // Claim is for information: it also makes a Claim
		call, _, _ := strings.Cut(strings.TrimPrefix(side, "onceward "), ",")
		name := "duplicates answered in process, " + call
		pairs = append(pairs,
			harness.Pair{Name: name, Side: side, Against: exactSide, Metric: harness.Nanos,
				Goal: harness.When(goals, harness.ValueAtMost(150, 60, "ns"))},
			harness.Pair{Name: name + ", allocations", Side: side, Against: exactSide,
				Metric: harness.Allocs,
				Goal:   harness.When(goals, harness.ValueAtMost(0, 0, "allocations"))})
	}
	return pairs
}

// initTesting lets testing.Benchmark run outside a test binary.
var initTesting = sync.OnceFunc(testing.Init)

// benchmark measures one with the testing package, over keys in turn.
func (e *env) benchmark(name string, keys []string, one func(key string)) harness.Side {
	return harness.Side{Name: name, External: func(context.Context) harness.Sample {
		initTesting()
		// A timing of less than this is mostly the first hit, which may look into the store.
		budget := max(e.budget, 100*time.Millisecond)
		must.Do(flag.Set("test.benchtime", budget.String()))
		var failure error
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			failure = must.Try(func() {
				for b.Loop() {
					one(keys[i%len(keys)])
					i++
				}
			})
		})
		must.Do(failure)
		must.True(r.N > 0 && r.T > 0, "nothing was measured")
		return harness.Sample{Rate: float64(r.N) / r.T.Seconds(),
			Usage: harness.Usage{Allocs: float64(r.MemAllocs) / float64(r.N)}}
	}}
}
