package redisbench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
)

// This many batches are in work at once: two for a consumer with two partitions, eight for one with
// many.
const workers, many = 2, 8

// ofRaw are the goals for the rate, by the number of batches in work.
var ofRaw = map[int]harness.Goal{
	workers: ">= 0.75x (stretch 0.85x)", many: ">= 0.85x (stretch 0.92x)",
}

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

	// sides of the families with callers, by the names of their peers
	plainSide    = "plain go-redis"
	autoSide     = "go-redis AutoPipeline"
	rueidisWait  = "rueidis, MaxFlushDelay 20µs"
	rueidisEager = "rueidis"
	naiveCalls   = "naive GET, SET NX, SET"
)

type batching struct {
	*harness.Setup

	workers, size int
}

func inBatches(s *harness.Setup, workers, size int) batching {
	s.Multiple = workers * size
	return batching{s, workers, size}
}

// side adds a side that is timed over new keys, or over keys that the batch before has made known.
func (b batching) side(name string, one work.Batch, before ...work.Batch) {
	var prepare harness.Run
	for _, known := range before {
		prepare = work.InBatches(b.workers, b.size, known)
	}
	b.Prepared(name, prepare, work.InBatches(b.workers, b.size, one))
}

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
	add("batch-8", "8 under way, ", many, work.Typical)
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
	b.side(goRedisSide, peer.GoRedisBatch(client))
	b.side(rueidisSide, peer.RueidisBatch(peer.RueidisClient(b.Setup, e.redis.Addr, 0)))
	if b.central() {
		b.Side(naiveSide, work.Callers(16, peer.Naive(client).Cycle))
	}
	loadGen := b.central() && e.canGenerateLoad()
	if loadGen {
		requests := max(int(300_000*e.budget.Seconds()), 20_000)
		b.External(loadGenSide, func(ctx context.Context) harness.Sample {
			return harness.Sample{Rate: peer.RedisBenchmark(ctx, e.redis.Addr, 128, requests)}
		})
	}
	b.compare(loadGen)
}

// central reports whether this is the batch with the most comparisons.
func (b batching) central() bool { return b.workers == workers && b.size == work.Typical }

// canGenerateLoad reports whether redis-benchmark can run: the embedded server does not know CONFIG
// GET.
func (e *env) canGenerateLoad() bool {
	_, err := exec.LookPath(peer.LoadGenerator)
	return err == nil && !e.redis.Embedded
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

func (e *env) duplicates(all *harness.Groups) {
	const title = "batch 256, duplicates"
	all.Add("batch-duplicates", work.Typical, title, func(ctx context.Context, s *harness.Setup) {
		b := inBatches(s, workers, work.Typical)
		raw := work.DialRaw(ctx, s, e.redis.Addr, workers)
		b.side(rawGet, func(ctx context.Context, worker int, keys []string) {
			raw[worker].ClaimKnown(ctx, keys, work.RawToken, peer.Lease)
		}, raw.Cycle("1"))
		b.side(rawMGet, func(ctx context.Context, worker int, keys []string) {
			raw[worker].MGet(ctx, keys)
		}, raw.Cycle("1"))
		const pipeline = "raw SET NX GET pipeline"
		for _, l := range work.Layouts {
			d := l.Open(ctx, s, e.redis.Addr, 0)
			b.side(l.Name, d.Batch(work.Known, nil), d.Batch(work.New, nil))
			if l == work.Full {
				b.side(likelySide, d.Likely(), d.Batch(work.New, nil))
				s.Compare(likelySide, rawGet).Called(title + ", read first").As(pipeline).
					Wants(">= 1.5x (stretch 1.8x)")
			}
			s.Compare(l.Name, rawGet).As(pipeline).Wants(harness.When(l == work.Full, ">= 0.9x"))
		}
		s.Compare(rawMGet, rawGet)
	})
}

func (e *env) results(all *harness.Groups) {
	for _, size := range []int{0, 100, 1 << 10, 10 << 10} {
		title := fmt.Sprintf("batch %d, new keys, result of %d bytes", work.Typical, size)
		all.Add("result", size, title, func(ctx context.Context, s *harness.Setup) {
			b, value := inBatches(s, workers, work.Typical), "1"
			s.MaxKeys = 4096 // the stored results stay for the window
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

func callersTitle(n int) string {
	if n == 1 {
		return "lone caller, new key"
	}
	return fmt.Sprintf("%d callers, new keys", n)
}

// callers adds workloads in which each goroutine claims and completes one key after another.
func (e *env) callers(all *harness.Groups) {
	for _, n := range []int{1, 4, 16, 64, 256, 1024} {
		all.Add("callers", n, callersTitle(n), func(ctx context.Context, s *harness.Setup) {
			compareCallers(s, callersTitle(n), n)
			openCallers(ctx, s, e.redis.Addr, n, work.Layouts)
		}).Detail = n == 4 || n == 16
	}
}

// peerPool is how many connections plain go-redis has: one for each caller, within what people give
// a process. Our client has the default of go-redis.
func peerPool(callers int) int { return min(max(callers, 16), 256) }

func openCallers(ctx context.Context, s *harness.Setup, addr string, n int, ours []work.Layout) {
	const flushDelay = 20 * time.Microsecond // as the documentation of rueidis proposes
	s.Multiple = n
	client := server.NewClient(s, addr, 0, peerPool(n))
	peers := []peer.Peer{peer.Plain(client)}
	for _, l := range ours {
		peers = append(peers, peer.Peer{Name: l.Name, Cycle: l.Open(ctx, s, addr, 0).One(work.New)})
	}
	peers = append(peers, peer.Rueidis(s, addr, 0), peer.Rueidis(s, addr, flushDelay),
		peer.AutoPipeline(s, client))
	if n == 1 {
		peers = append(peers, peer.Naive(client))
	}
	for _, p := range peers {
		s.Side(p.Name, work.Callers(n, p.Cycle))
	}
}

func compareCallers(s *harness.Setup, title string, n int) {
	const plain = "plain go-redis two-command cycle"
	toPlain := map[int]harness.Goal{
		1: ">= 0.95x (stretch 1x)", 64: ">= 2.5x (stretch 4x)", 256: ">= 4x (stretch 6x)",
		1024: ">= 5.5x (stretch 8x)",
	}
	for _, l := range work.Layouts {
		name, goals := title, l == work.Full
		if n == 1 {
			s.Compare(l.Name, naiveCalls).As("naive three round trips").
				Wants(harness.When(goals, ">= 1.35x (stretch 1.5x)"))
			name = "lone caller through the coalescer"
		}
		s.Compare(l.Name, plainSide).Called(name).As(plain).Wants(harness.When(goals, toPlain[n]))
		s.Compare(l.Name, rueidisWait).
			Wants(harness.When(goals && n >= 64, ">= 0.7x (stretch 0.85x)"))
		s.Compare(l.Name, autoSide)
		s.Compare(l.Name, plainSide).Called(title + ", latency p50").As(plain).In(harness.P50)
		s.Compare(l.Name, plainSide).Called(title + ", latency p99").As(plain).In(harness.P99)
	}
	for _, side := range []string{rueidisEager, rueidisWait, autoSide} {
		s.Compare(side, plainSide).As(plain)
	}
}

// busy adds a lone caller on a machine whose other core is busy, as cores of a loaded server are.
// Here the caller pays for waking other goroutines and threads; with an idle core it does not.
func (e *env) busy(all *harness.Groups) {
	const title = "lone caller, new key, other core busy"
	all.Add("callers-busy", 1, title, func(ctx context.Context, s *harness.Setup) {
		server.Busy(s)
		s.Compare(work.Full.Name, plainSide).Wants(">= 0.93x (stretch 1x)")
		s.Compare(work.Full.Name, plainSide).Called("lone caller, other core busy, client CPU").
			In(harness.ClientMicros).Wants("<= 1.15x (stretch 1x)")
		s.Compare(rueidisWait, plainSide)
		openCallers(ctx, s, e.redis.Addr, 1, []work.Layout{work.Full})
	})
}

// delayed adds workloads with a server that is 2 ms away, behind a proxy: the network decides the
// rate.
func (e *env) delayed(all *harness.Groups) {
	proxy := func(ctx context.Context, s *harness.Setup) (addr string) {
		return server.Delay(ctx, s, e.redis.Addr, time.Millisecond)
	}
	for _, n := range []int{1, 64, 256, 1024} {
		all.Add("callers-2ms", n, callersTitle(n)+", 2 ms RTT",
			func(ctx context.Context, s *harness.Setup) {
				ours := work.Full.Name
				s.Compare(ours, rueidisWait).Wants(harness.When(n >= 64, ">= 0.85x (stretch 1x)"))
				s.Compare(ours, plainSide)
				s.Compare(ours, autoSide)
				for _, side := range []string{rueidisWait, rueidisEager, autoSide} {
					s.Compare(side, plainSide)
				}
				openCallers(ctx, s, proxy(ctx, s), n, []work.Layout{work.Full})
			}).Detail = n == 1 || n == 64
	}
	all.Add("batch-2ms", work.Typical, fmt.Sprintf("batch %d, new keys, 2 ms RTT", work.Typical),
		func(ctx context.Context, s *harness.Setup) {
			b, addr := inBatches(s, workers, work.Typical), proxy(ctx, s)
			b.side(rawSide, work.DialRaw(ctx, s, addr, workers).Cycle("1"))
			d := work.Full.Open(ctx, s, addr, 0)
			b.side(work.Full.Name, d.Batch(work.New, nil))
			s.Compare(work.Full.Name, rawSide).As(rawPipelines)
			s.Side(mergedSide, d.Merged(workers))
			s.Compare(mergedSide, work.Full.Name).As("in two round trips").
				Called("batch 256, completions merged with the next claims, 2 ms RTT")
		})
}

// peers adds libraries that people use for the same job, with one key per call.
func (e *env) peers(all *harness.Groups) {
	for _, n := range []int{1, 16, 128} {
		title := fmt.Sprintf("peers, %d callers, new keys", n)
		if n == 1 {
			title = "peers, one caller, new keys"
		}
		all.Add("peers", n, title, func(ctx context.Context, s *harness.Setup) {
			s.Multiple = n
			client := server.NewClient(s, e.redis.Addr, 0, n+16)
			ours := work.Full.Open(ctx, s, e.redis.Addr, 0).One(work.New)
			for _, p := range []peer.Peer{
				peer.Naive(client), {Name: work.Full.Name, Cycle: ours}, peer.Plain(client),
				peer.Redislock(client), peer.Redsync(client), peer.Fiber(client), peer.Watermill(),
			} {
				s.Side(p.Name, work.Callers(n, p.Cycle))
				if p.Name != naiveCalls {
					s.Compare(p.Name, naiveCalls)
				}
			}
		}).Detail = n != 16
	}
}
