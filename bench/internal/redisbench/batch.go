package redisbench

import (
	"bytes"
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/redisadapter"
)

// workers is how many batches are under way at once, where nothing else is said: two partitions of
// one consumer.
const workers = 2

// many is how many are under way in a consumer of many partitions.
const many = 8

// Names of the sides of several families.
const (
	rawSide      = "raw RESP"
	rawGet       = "raw SET NX GET"
	rawMGet      = "raw MGET"
	goRedisSide  = "go-redis SetArgs pipelines"
	rueidisSide  = "rueidis DoMulti"
	naiveSide    = "naive, 16 callers"
	loadGenSide  = "redis-benchmark -P 128, one SET per key"
	mergedSide   = "onceward seen-only, CompleteAndClaim"
	likelySide   = "onceward seen-only, LikelyDuplicate"
	rawPipelines = "raw RESP client doing the same two pipelines"
)

func plain() work.Layout { return work.Of(redisadapter.SeenOnly) }
func rich() work.Layout  { return work.Of(redisadapter.Rich) }
func small() work.Layout { return work.Of(redisadapter.Compact) }

type batching struct {
	*harness.Setup

	workers, size int
}

func inBatches(s *harness.Setup, workers, size int) batching {
	s.Multiple = workers * size
	return batching{s, workers, size}
}

func (b batching) side(name string, one work.Batch) {
	b.Side(name, work.InBatches(b.workers, b.size, one))
}

// known is a side that is timed over keys that another batch has made known.
func (b batching) known(name string, before, one work.Batch) {
	b.Prepared(name, work.InBatches(b.workers, b.size, before),
		work.InBatches(b.workers, b.size, one))
}

// batches: new keys, claimed and completed.
func (e *env) batches() (groups []harness.Group) {
	add := func(workload, underWay string, workers, size int) {
		groups = append(groups, harness.Group{
			Workload: workload, X: float64(size), Detail: size != 16 && size != work.Typical,
			Title: fmt.Sprintf("batch %d, %sclaim + complete, new keys", size, underWay),
			Open: func(ctx context.Context, s *harness.Setup) {
				e.openBatch(ctx, inBatches(s, workers, size))
			},
		})
	}
	for _, size := range []int{16, 64, work.Typical, 512, 1024} {
		add("batch", "", workers, size)
	}
	add("batch-8", fmt.Sprintf("%d under way, ", many), many, work.Typical)
	return groups
}

func (e *env) openBatch(ctx context.Context, b batching) {
	central := b.workers == workers && b.size == work.Typical
	b.side(rawSide, work.DialRaw(ctx, b.Setup, e.redis.Addr, b.workers).Cycle("1"))
	for _, l := range work.Layouts {
		d := l.Open(ctx, b.Setup, e.redis.Addr, 0)
		b.side(l.Name, d.Batch(work.New, nil))
		if central && l.Kind == plain().Kind {
			b.Side(mergedSide, d.Merged(workers))
		}
	}
	client := server.NewClient(b.Setup, e.redis.Addr, 0, 32)
	b.side(goRedisSide, func(ctx context.Context, _ int, keys []string) {
		peer.GoRedisBatch(ctx, client, keys)
	})
	multi := peer.RueidisClient(b.Setup, e.redis.Addr, 0)
	b.side(rueidisSide, func(ctx context.Context, _ int, keys []string) {
		peer.RueidisBatch(ctx, multi, keys)
	})
	loadGen := false
	if central {
		b.Side(naiveSide, work.Callers(16, peer.Naive(client).Cycle))
		loadGen = e.loadGenerator(b.Setup)
	}
	b.Pair(batchPairs(b.workers, b.size, loadGen)...)
}

// loadGenerator adds redis-benchmark, where it is installed.
func (e *env) loadGenerator(s *harness.Setup) bool {
	path := peer.RedisBenchmarkPath()
	if path == "" || e.redis.Embedded { // the embedded server does not know CONFIG GET
		return false
	}
	requests := max(int(300_000*e.budget.Seconds()), 20_000)
	s.External(loadGenSide, func(ctx context.Context) harness.Sample {
		return harness.Sample{Rate: peer.RedisBenchmark(ctx, path, e.redis.Addr, 128, requests)}
	})
	return true
}

func batchPairs(underWay, size int, loadGen bool) (pairs []harness.Pair) {
	add := func(p harness.Pair, goal harness.Goal) {
		if p.Against == rawSide {
			p.Text = rawPipelines
		}
		p.Goal = goal
		pairs = append(pairs, p)
	}
	typical := size == work.Typical
	central := typical && underWay == workers
	for _, l := range work.Layouts {
		add(harness.Pair{Side: l.Name, Against: rawSide},
			harness.When(typical && !l.Extra, harness.AtLeast(0.85, 0.92)))
		if typical {
			add(harness.Pair{Side: l.Name, Against: goRedisSide},
				harness.When(!l.Extra, harness.AtLeast(0.9, 0.97)))
		}
		if !central {
			continue
		}
		if !l.Extra {
			add(harness.Pair{Side: l.Name, Against: naiveSide,
				Text: "naive three round trips, 16 callers"}, harness.AtLeast(10, 15))
			add(harness.Pair{Side: l.Name, Against: goRedisSide, Metric: harness.Allocs,
				Name: "allocations per key in a batch cycle"},
				harness.ValueAtMost(6, 3, "allocations"))
		}
		add(harness.Pair{Side: l.Name, Against: rawSide, Metric: harness.ServerMicros,
			Name: "server CPU per cycle, batch 256"}, harness.Goal{})
		if loadGen && !l.Extra {
			add(harness.Pair{Side: l.Name, Against: loadGenSide}, harness.Goal{})
		}
	}
	if central {
		const name = "batch 256, completions merged with the next claims"
		add(harness.Pair{Side: mergedSide, Against: plain().Name, Name: name,
			Text: "in two round trips"}, harness.Goal{})
		add(harness.Pair{Side: mergedSide, Against: rawSide, Name: name}, harness.Goal{})
	}
	add(harness.Pair{Side: goRedisSide, Against: rawSide}, harness.Goal{})
	add(harness.Pair{Side: rueidisSide, Against: rawSide}, harness.Goal{})
	return pairs
}

// duplicates: a batch of keys that all are done.
func (e *env) duplicates() []harness.Group {
	return []harness.Group{{Workload: "batch-duplicates", X: work.Typical,
		Title: fmt.Sprintf("batch %d, duplicates", work.Typical), Open: e.openDuplicates}}
}

func (e *env) openDuplicates(ctx context.Context, s *harness.Setup) {
	b := inBatches(s, workers, work.Typical)
	raw := work.DialRaw(ctx, s, e.redis.Addr, workers)
	b.known(rawGet, raw.Cycle("1"), func(ctx context.Context, worker int, keys []string) {
		raw[worker].ClaimKnown(ctx, keys, work.RawToken, peer.Lease)
	})
	b.known(rawMGet, raw.Cycle("1"), func(ctx context.Context, worker int, keys []string) {
		raw[worker].MGet(ctx, keys)
	})
	const pipeline = "raw SET NX GET pipeline"
	for _, l := range work.Layouts {
		d := l.Open(ctx, s, e.redis.Addr, 0)
		b.known(l.Name, d.Batch(work.New, nil), d.Batch(work.Known, nil))
		if l.Kind == plain().Kind {
			b.known(likelySide, d.Batch(work.New, nil), d.Likely)
			s.Pair(harness.Pair{Name: fmt.Sprintf("batch %d, duplicates, read first", work.Typical),
				Side: likelySide, Against: rawGet, Text: pipeline, Goal: harness.AtLeast(1.5, 1.8)})
		}
		s.Pair(harness.Pair{Side: l.Name, Against: rawGet, Text: pipeline,
			Goal: harness.When(!l.Extra, harness.AtLeast(0.9, 0))})
	}
	s.Pair(harness.Pair{Side: rawMGet, Against: rawGet})
}

// results: completions that store what the handler returned.
func (e *env) results() (groups []harness.Group) {
	for _, size := range []int{0, 100, 1 << 10, 10 << 10} {
		groups = append(groups, harness.Group{
			Workload: "result", X: float64(size), Detail: size == 100 || size == 0,
			Title: fmt.Sprintf("batch %d, new keys, result of %d bytes", work.Typical, size),
			Open: func(ctx context.Context, s *harness.Setup) {
				e.openResult(ctx, inBatches(s, workers, work.Typical), size)
			},
		})
	}
	return groups
}

func (e *env) openResult(ctx context.Context, b batching, size int) {
	b.MaxKeys = 4096 // what they store stays for the window
	var result []byte
	value := "1"
	if size > 0 {
		result = bytes.Repeat([]byte("r"), size)
		value = string(result)
	}
	b.side(rawSide, work.DialRaw(ctx, b.Setup, e.redis.Addr, workers).Cycle(value))
	b.side(rich().Name, rich().Open(ctx, b.Setup, e.redis.Addr, 0).Batch(work.New, result))
	b.Pair(harness.Pair{Side: rich().Name, Against: rawSide, Text: rawPipelines})
}
