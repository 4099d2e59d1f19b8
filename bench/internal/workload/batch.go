package workload

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
)

// workers is how many batches are under way at once: two partitions of one consumer.
const workers = 2

// typical is the batch that the goals speak of.
const typical = 256

// Names of the sides of several families.
const (
	rawSide      = "raw RESP"
	goRedisSide  = "go-redis SetArgs pipelines"
	rueidisSide  = "rueidis DoMulti"
	naiveSide    = "naive, 16 callers"
	loadGenSide  = "redis-benchmark -P 128, one SET per key"
	mergedSide   = "onceward seen-only, CompleteAndClaim"
	likelySide   = "onceward seen-only, LikelyDuplicate"
	rawPipelines = "raw RESP client doing the same two pipelines"
)

// batches: new keys, claimed and completed.
func (e *Env) batches() []harness.Group {
	var groups []harness.Group
	for _, size := range []int{16, 64, typical, 512, 1024} {
		groups = append(groups, harness.Group{
			Workload: "batch", X: float64(size), Title: fmt.Sprintf("batch %d, claim + complete, new keys", size), Detail: size != 16 && size != typical,
			Open: func(ctx context.Context) (harness.Setup, error) { return e.openBatch(ctx, size) },
		})
	}
	return groups
}

func (e *Env) openBatch(ctx context.Context, size int) (harness.Setup, error) {
	var opened closing
	s := harness.Setup{Multiple: workers * size, Close: opened.all}
	add := func(name string, one func(context.Context, int, []string) error) {
		s.Sides = append(s.Sides, harness.Side{Name: name, Run: inBatches(workers, size, one)})
	}
	raw, err := dialRaw(ctx, e.Server.Addr, workers)
	if err != nil {
		return s, err
	}
	opened.add(raw.close)
	add(rawSide, raw.cycle("1"))
	for _, l := range layouts {
		o, err := l.open(ctx, e.Server.Addr, 0)
		if err != nil {
			opened.all()
			return s, err
		}
		opened.add(o.close)
		add(l.name, o.cycles(nil))
		if size == typical && l.name == plain().name {
			s.Sides = append(s.Sides, harness.Side{Name: mergedSide, Run: o.merged})
		}
	}
	client := e.Server.Client(0, 32)
	opened.add(func() { _ = client.Close() })
	add(goRedisSide, func(ctx context.Context, _ int, keys []string) error { return peer.GoRedisBatch(ctx, client, keys) })
	multi, err := peer.RueidisClient(e.Server.Addr, 0)
	if err != nil {
		opened.all()
		return s, err
	}
	opened.add(multi.Close)
	add(rueidisSide, func(ctx context.Context, _ int, keys []string) error { return peer.RueidisBatch(ctx, multi, keys) })
	if size == typical {
		s.Sides = append(s.Sides, harness.Side{Name: naiveSide, Run: callers(16, peer.Naive(client).Cycle)})
		s.Sides = append(s.Sides, e.loadGenerator()...)
	}
	s.Pairs = batchPairs(size, len(s.Sides))
	s.Close = opened.all
	return s, nil
}

// loadGenerator is redis-benchmark, where it is installed.
func (e *Env) loadGenerator() []harness.Side {
	path := peer.RedisBenchmarkPath()
	if path == "" || e.Server.Embedded { // the embedded server does not know CONFIG GET
		return nil
	}
	requests := max(int(300_000*e.Budget.Seconds()), 20_000)
	return []harness.Side{{Name: loadGenSide, External: func(ctx context.Context) (harness.Sample, error) {
		rate, err := peer.RedisBenchmark(ctx, path, e.Server.Addr, 128, requests)
		return harness.Sample{Rate: rate}, err
	}}}
}

func batchPairs(size, sides int) []harness.Pair {
	name := fmt.Sprintf("batch %d, claim + complete, new keys", size)
	var pairs []harness.Pair
	for _, l := range layouts {
		p := harness.Pair{Name: name, Side: l.name, Against: rawSide, Text: rawPipelines}
		if size == typical && l.extra {
			p, pairs = serverCPU(l, rawSide, rawPipelines), append(pairs, p)
		}
		if size != typical || l.extra {
			pairs = append(pairs, p)
			continue
		}
		p.Goal = harness.AtLeast(0.85, 0.92)
		pairs = append(pairs, p,
			harness.Pair{Name: name, Side: l.name, Against: naiveSide, Text: "naive three round trips, 16 callers", Goal: harness.AtLeast(10, 15)},
			harness.Pair{Name: "allocations per key in a batch cycle", Side: l.name, Against: goRedisSide, Metric: harness.Allocs,
				Goal: harness.ValueAtMost(6, 3, "allocations")},
			serverCPU(l, rawSide, rawPipelines))
		if sides > len(layouts)+5 { // redis-benchmark is there
			pairs = append(pairs, harness.Pair{Name: name, Side: l.name, Against: loadGenSide})
		}
	}
	if size == typical {
		pairs = append(pairs,
			harness.Pair{Name: "batch 256, completions merged with the next claims", Side: mergedSide, Against: plain().name, Text: "in two round trips"},
			harness.Pair{Name: "batch 256, completions merged with the next claims", Side: mergedSide, Against: rawSide, Text: rawPipelines})
	}
	return append(pairs,
		harness.Pair{Name: name, Side: goRedisSide, Against: rawSide, Text: rawPipelines},
		harness.Pair{Name: name, Side: rueidisSide, Against: rawSide, Text: rawPipelines})
}

func serverCPU(l layout, against, text string) harness.Pair {
	return harness.Pair{Name: "server CPU per cycle, batch 256", Side: l.name, Against: against, Text: text, Metric: harness.ServerMicros}
}

// duplicates: a batch of keys that all are done.
func (e *Env) duplicates() []harness.Group {
	return []harness.Group{{
		Workload: "batch-duplicates", X: typical, Title: fmt.Sprintf("batch %d, duplicates", typical), Open: e.openDuplicates,
	}}
}

func (e *Env) openDuplicates(ctx context.Context) (harness.Setup, error) {
	const size = typical
	var opened closing
	raw, err := dialRaw(ctx, e.Server.Addr, workers)
	if err != nil {
		return harness.Setup{}, err
	}
	opened.add(raw.close)
	known := inBatches(workers, size, raw.cycle("1"))
	run := func(one func(context.Context, int, []string) error) runFunc { return inBatches(workers, size, one) }
	s := harness.Setup{Multiple: workers * size, Sides: []harness.Side{
		{Name: "raw SET NX GET", Prepare: known, Run: run(func(ctx context.Context, worker int, keys []string) error {
			return raw[worker].ClaimKnown(ctx, keys, rawToken, peer.Lease)
		})},
		{Name: "raw MGET", Prepare: known, Run: run(func(ctx context.Context, worker int, keys []string) error {
			return raw[worker].MGet(ctx, keys)
		})},
	}}
	for _, l := range layouts {
		o, err := l.open(ctx, e.Server.Addr, 0)
		if err != nil {
			opened.all()
			return s, err
		}
		opened.add(o.close)
		s.Sides = append(s.Sides, harness.Side{Name: l.name, Prepare: run(o.cycles(nil)), Run: run(o.duplicates)})
		if l.name == plain().name {
			s.Sides = append(s.Sides, harness.Side{Name: likelySide, Prepare: run(o.cycles(nil)), Run: run(o.likely)})
			s.Pairs = append(s.Pairs, harness.Pair{Name: fmt.Sprintf("batch %d, duplicates, read first", size), Side: likelySide,
				Against: "raw SET NX GET", Text: "raw SET NX GET pipeline", Goal: harness.AtLeast(1.5, 1.8)})
		}
		s.Pairs = append(s.Pairs, harness.Pair{Name: fmt.Sprintf("batch %d, duplicates", size), Side: l.name, Against: "raw SET NX GET", Text: "raw SET NX GET pipeline",
			Goal: when(!l.extra, harness.AtLeast(0.9, 0))})
	}
	s.Pairs = append(s.Pairs, harness.Pair{Name: fmt.Sprintf("batch %d, duplicates", size), Side: "raw MGET", Against: "raw SET NX GET"})
	s.Close = opened.all
	return s, nil
}
