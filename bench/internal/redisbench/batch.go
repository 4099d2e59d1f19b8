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

// workers is how many batches are under way at once: two partitions of one consumer.
const workers = 2

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

func plain() work.Layout { return work.Plain() }
func rich() work.Layout  { return work.Of(redisadapter.Rich) }
func small() work.Layout { return work.Of(redisadapter.Compact) }

// batches: new keys, claimed and completed.
func (e *env) batches() []harness.Group {
	var groups []harness.Group
	for _, size := range []int{16, 64, work.Typical, 512, 1024} {
		groups = append(groups, harness.Group{
			Workload: "batch", X: float64(size),
			Title: fmt.Sprintf("batch %d, claim + complete, new keys", size), Detail: size != 16 &&
				size != work.Typical,
			Open: func(ctx context.Context, s *harness.Setup) error {
				return e.openBatch(ctx, s, size)
			},
		})
	}
	return groups
}

func (e *env) openBatch(ctx context.Context, s *harness.Setup, size int) error {
	s.Multiple = workers * size
	add := func(name string, one work.Batch) { s.Side(name, work.InBatches(workers, size, one)) }
	raw, err := work.DialRaw(ctx, s, e.redis.Addr, workers)
	if err != nil {
		return err
	}
	add(rawSide, raw.Cycle("1"))
	for _, l := range work.Layouts {
		d, err := l.Open(ctx, s, e.redis.Addr, 0)
		if err != nil {
			return err
		}
		add(l.Name, d.Batch(work.New, nil))
		if size == work.Typical && l.Kind == plain().Kind {
			s.Side(mergedSide, d.Merged(workers))
		}
	}
	client := server.NewClient(e.redis.Addr, 0, 32)
	s.Defer(client.Close)
	add(goRedisSide, func(ctx context.Context, _ int, keys []string) error {
		return peer.GoRedisBatch(ctx, client, keys)
	})
	multi, err := peer.RueidisClient(e.redis.Addr, 0)
	if err != nil {
		return err
	}
	s.Defer(func() error { multi.Close(); return nil })
	add(rueidisSide, func(ctx context.Context, _ int, keys []string) error {
		return peer.RueidisBatch(ctx, multi, keys)
	})
	loadGen := false
	if size == work.Typical {
		s.Side(naiveSide, work.Callers(16, peer.Naive(client).Cycle))
		loadGen = e.loadGenerator(s)
	}
	s.Pair(batchPairs(size, loadGen)...)
	return nil
}

// loadGenerator adds redis-benchmark, where it is installed.
func (e *env) loadGenerator(s *harness.Setup) bool {
	path := peer.RedisBenchmarkPath()
	if path == "" || e.redis.Embedded { // the embedded server does not know CONFIG GET
		return false
	}
	requests := max(int(300_000*e.budget.Seconds()), 20_000)
	s.Sides = append(s.Sides,
		harness.Side{Name: loadGenSide,
			External: func(ctx context.Context) (harness.Sample, error) {
				rate, err := peer.RedisBenchmark(ctx, path, e.redis.Addr, 128, requests)
				return harness.Sample{Rate: rate}, err
			}})
	return true
}

func batchPairs(size int, loadGen bool) []harness.Pair {
	var pairs []harness.Pair
	add := func(side, against, text string, goal harness.Goal) *harness.Pair {
		pairs = append(pairs, harness.Pair{Side: side, Against: against, Text: text, Goal: goal})
		return &pairs[len(pairs)-1]
	}
	serverCPU := func(side string) {
		p := add(side, rawSide, rawPipelines, harness.Goal{})
		p.Name, p.Metric = "server CPU per cycle, batch 256", harness.ServerMicros
	}
	for _, l := range work.Layouts {
		central := size == work.Typical
		add(l.Name, rawSide, rawPipelines,
			harness.When(central && !l.Extra, harness.AtLeast(0.85, 0.92)))
		if !central {
			continue
		}
		if !l.Extra {
			add(l.Name, naiveSide, "naive three round trips, 16 callers", harness.AtLeast(10, 15))
			p := add(l.Name, goRedisSide, "", harness.ValueAtMost(6, 3, "allocations"))
			p.Name, p.Metric = "allocations per key in a batch cycle", harness.Allocs
		}
		serverCPU(l.Name)
		if loadGen && !l.Extra {
			add(l.Name, loadGenSide, "", harness.Goal{})
		}
	}
	if size == work.Typical {
		const name = "batch 256, completions merged with the next claims"
		add(mergedSide, plain().Name, "in two round trips", harness.Goal{}).Name = name
		add(mergedSide, rawSide, rawPipelines, harness.Goal{}).Name = name
	}
	add(goRedisSide, rawSide, rawPipelines, harness.Goal{})
	add(rueidisSide, rawSide, rawPipelines, harness.Goal{})
	return pairs
}

// duplicates: a batch of keys that all are done.
func (e *env) duplicates() []harness.Group {
	return []harness.Group{{Workload: "batch-duplicates", X: work.Typical,
		Title: fmt.Sprintf("batch %d, duplicates", work.Typical), Open: e.openDuplicates}}
}

func (e *env) openDuplicates(ctx context.Context, s *harness.Setup) error {
	const rawGet = "raw SET NX GET"
	s.Multiple = workers * work.Typical
	raw, err := work.DialRaw(ctx, s, e.redis.Addr, workers)
	if err != nil {
		return err
	}
	add := func(name string, known, one work.Batch) {
		s.Sides = append(s.Sides, harness.Side{
			Name: name, Prepare: work.InBatches(workers, work.Typical, known),
			Run: work.InBatches(workers, work.Typical, one),
		})
	}
	add(rawGet, raw.Cycle("1"), func(ctx context.Context, worker int, keys []string) error {
		return raw[worker].ClaimKnown(ctx, keys, work.RawToken, peer.Lease)
	})
	add("raw MGET", raw.Cycle("1"), func(ctx context.Context, worker int, keys []string) error {
		return raw[worker].MGet(ctx, keys)
	})
	for _, l := range work.Layouts {
		d, err := l.Open(ctx, s, e.redis.Addr, 0)
		if err != nil {
			return err
		}
		cycles := d.Batch(work.New, nil)
		add(l.Name, cycles, d.Batch(work.Known, nil))
		if l.Kind == plain().Kind {
			add(likelySide, cycles, d.Likely)
			s.Pair(harness.Pair{
				Name: fmt.Sprintf("batch %d, duplicates, read first", work.Typical),
				Side: likelySide, Against: rawGet, Text: "raw SET NX GET pipeline",
				Goal: harness.AtLeast(1.5, 1.8),
			})
		}
		s.Pair(harness.Pair{Side: l.Name, Against: rawGet, Text: "raw SET NX GET pipeline",
			Goal: harness.When(!l.Extra, harness.AtLeast(0.9, 0))})
	}
	s.Pair(harness.Pair{Side: "raw MGET", Against: rawGet})
	return nil
}

// results: completions that store what the handler returned.
func (e *env) results() []harness.Group {
	var groups []harness.Group
	for _, size := range []int{0, 100, 1 << 10, 10 << 10} {
		groups = append(groups, harness.Group{
			Workload: "result", X: float64(size),
			Title:  fmt.Sprintf("batch %d, new keys, result of %d bytes", work.Typical, size),
			Detail: size == 100 || size == 0,
			Open: func(ctx context.Context, s *harness.Setup) error {
				return e.openResult(ctx, s, size)
			},
		})
	}
	return groups
}

// maxResultKeys of one timing: what they store stays for the window.
const maxResultKeys = 4096

func (e *env) openResult(ctx context.Context, s *harness.Setup, size int) error {
	s.Multiple, s.MaxKeys = workers*work.Typical, maxResultKeys
	raw, err := work.DialRaw(ctx, s, e.redis.Addr, workers)
	if err != nil {
		return err
	}
	d, err := rich().Open(ctx, s, e.redis.Addr, 0)
	if err != nil {
		return err
	}
	var result []byte
	value := "1"
	if size > 0 {
		result = bytes.Repeat([]byte("r"), size)
		value = string(result)
	}
	s.Side(rawSide, work.InBatches(workers, work.Typical, raw.Cycle(value)))
	s.Side(rich().Name, work.InBatches(workers, work.Typical, d.Batch(work.New, result)))
	s.Pair(harness.Pair{Side: rich().Name, Against: rawSide, Text: rawPipelines})
	return nil
}
