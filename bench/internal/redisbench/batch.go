package redisbench

import (
	"bytes"
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
)

// workers is how many batches are under way at once, where nothing else is said: two partitions of
// one consumer.
const workers = 2

// many is how many are under way in a consumer of many partitions.
const many = 8

// ofRaw are the goals of the rate, by how many batches are under way.
var ofRaw = map[int]harness.Goal{
	workers: ">= 0.75x (stretch 0.85x)", many: ">= 0.85x (stretch 0.92x)",
}

// Names of the sides of several families.
const (
	rawSide      = "raw RESP"
	rawGet       = "raw SET NX GET"
	rawMGet      = "raw MGET"
	goRedisSide  = "go-redis SetArgs pipelines"
	rueidisSide  = "rueidis DoMulti"
	naiveSide    = "naive, 16 callers"
	loadGenSide  = "redis-benchmark -P 128, one SET per key"
	mergedSide   = "onceward full, CompleteAndClaim"
	likelySide   = "onceward full, LikelyDuplicate"
	rawPipelines = "raw RESP client doing the same two pipelines"
)

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
func (e *env) batches(all *harness.Groups) {
	add := func(workload, underWay string, workers, size int) {
		all.Add(workload, size, fmt.Sprintf("batch %d, %sclaim + complete, new keys", size, underWay),
			func(ctx context.Context, s *harness.Setup) {
				e.openBatch(ctx, inBatches(s, workers, size))
			}).Detail = size != 16 && size != work.Typical
	}
	for _, size := range []int{16, 64, work.Typical, 512, 1024} {
		add("batch", "", workers, size)
	}
	add("batch-8", fmt.Sprintf("%d under way, ", many), many, work.Typical)
}

func (e *env) openBatch(ctx context.Context, b batching) {
	b.side(rawSide, work.DialRaw(ctx, b.Setup, e.redis.Addr, b.workers).Cycle("1"))
	for _, l := range work.Layouts {
		d := l.Open(ctx, b.Setup, e.redis.Addr, 0)
		b.side(l.Name, d.Batch(work.New, nil))
		if b.central() && l == work.Full {
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
	if b.central() {
		b.Side(naiveSide, work.Callers(16, peer.Naive(client).Cycle))
		loadGen = e.loadGenerator(b.Setup)
	}
	b.compare(loadGen)
}

// central is the batch that most can be said about.
func (b batching) central() bool { return b.workers == workers && b.size == work.Typical }

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

func (b batching) compare(loadGen bool) {
	for _, l := range work.Layouts {
		goals := l == work.Full
		b.Compare(l.Name, rawSide).As(rawPipelines).
			Wants(harness.When(goals && b.size == work.Typical, ofRaw[b.workers]))
		if b.size == work.Typical {
			b.Compare(l.Name, goRedisSide).Wants(harness.When(goals, ">= 0.9x (stretch 0.97x)"))
		}
		if !b.central() {
			continue
		}
		if goals {
			b.Compare(l.Name, naiveSide).As("naive three round trips, 16 callers").
				Wants(">= 10x (stretch 15x)")
			b.Compare(l.Name, goRedisSide).Called("allocations per key in a batch cycle").
				In(harness.Allocs).Wants("<= 6 allocations (stretch 3 allocations)")
		}
		b.Compare(l.Name, rawSide).As(rawPipelines).Called("server CPU per cycle, batch 256").
			In(harness.ServerMicros).Wants(harness.When(goals, "<= 1.1x (stretch 1x)"))
		if loadGen && goals {
			b.Compare(l.Name, loadGenSide)
		}
	}
	if b.central() {
		const name = "batch 256, completions merged with the next claims"
		b.Compare(mergedSide, work.Full.Name).As("in two round trips").Called(name)
		b.Compare(mergedSide, rawSide).As(rawPipelines).Called(name)
	}
	b.Compare(goRedisSide, rawSide).As(rawPipelines)
	b.Compare(rueidisSide, rawSide).As(rawPipelines)
}

// duplicates: a batch of keys that all are done.
func (e *env) duplicates(all *harness.Groups) {
	title := fmt.Sprintf("batch %d, duplicates", work.Typical)
	all.Add("batch-duplicates", work.Typical, title, func(ctx context.Context, s *harness.Setup) {
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
			if l == work.Full {
				b.known(likelySide, d.Batch(work.New, nil), d.Likely)
				s.Compare(likelySide, rawGet).Called(title + ", read first").As(pipeline).
					Wants(">= 1.5x (stretch 1.8x)")
			}
			s.Compare(l.Name, rawGet).As(pipeline).
				Wants(harness.When(l == work.Full, ">= 0.9x"))
		}
		s.Compare(rawMGet, rawGet)
	})
}

// results: completions that store what the handler returned.
func (e *env) results(all *harness.Groups) {
	for _, size := range []int{0, 100, 1 << 10, 10 << 10} {
		title := fmt.Sprintf("batch %d, new keys, result of %d bytes", work.Typical, size)
		all.Add("result", size, title, func(ctx context.Context, s *harness.Setup) {
			b, value := inBatches(s, workers, work.Typical), "1"
			s.MaxKeys = 4096 // what they store stays for the window
			result := bytes.Repeat([]byte("r"), size)
			if size > 0 {
				value = string(result)
			}
			b.side(rawSide, work.DialRaw(ctx, s, e.redis.Addr, workers).Cycle(value))
			ours := work.Full.Open(ctx, s, e.redis.Addr, 0)
			b.side(work.Full.Name, ours.Batch(work.New, result))
			s.Compare(work.Full.Name, rawSide).As(rawPipelines)
		}).Detail = size == 100 || size == 0
	}
}
