package redisbench

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// flushDelay is what rueidis's documentation proposes for MaxFlushDelay.
const flushDelay = 20 * time.Microsecond

// Sides of the callers' families, by the names that their peers have.
const (
	plainSide    = "plain go-redis"
	autoSide     = "go-redis AutoPipeline"
	rueidisWait  = "rueidis, MaxFlushDelay 20µs"
	rueidisEager = "rueidis"
	naiveCalls   = "naive GET, SET NX, SET"
)

func callersTitle(n int) string {
	if n == 1 {
		return "lone caller, new key"
	}
	return fmt.Sprintf("%d callers, new keys", n)
}

// callers: each goroutine claims and completes one key after another.
func (e *env) callers() (groups []harness.Group) {
	for _, n := range []int{1, 4, 16, 64, 256, 1024} {
		title := callersTitle(n)
		groups = append(groups, harness.Group{
			Workload: "callers", X: float64(n), Title: title, Detail: n == 4 || n == 16,
			Open: func(ctx context.Context, s *harness.Setup) {
				s.Pair(callerPairs(title, n)...)
				openCallers(ctx, s, e.redis.Addr, n, work.Without(mixedIsCompact...))
			},
		})
	}
	return groups
}

// peerPool is how many connections plain go-redis has: one for every caller, up to what
// people give a process. Ours has the client's default.
func peerPool(callers int) int { return min(max(callers, 16), 256) }

func openCallers(ctx context.Context, s *harness.Setup, addr string, n int, ours []work.Layout) {
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

func callerPairs(title string, n int) (pairs []harness.Pair) {
	toPlain := map[int]harness.Goal{
		1: harness.AtLeast(0.95, 1), 64: harness.AtLeast(2.5, 4), 256: harness.AtLeast(4, 6),
		1024: harness.AtLeast(5.5, 8),
	}
	add := func(p harness.Pair) {
		if p.Against == plainSide {
			p.Text = "plain go-redis two-command cycle"
		}
		pairs = append(pairs, p)
	}
	for _, l := range work.Without(mixedIsCompact...) {
		// they compare two plain commands with two plain commands
		name, goals := title, l.Kind == plain().Kind
		if n == 1 {
			add(harness.Pair{Side: l.Name, Against: naiveCalls, Text: "naive three round trips",
				Goal: harness.When(goals, harness.AtLeast(1.35, 1.5))})
			name = "lone caller through the coalescer"
		}
		add(harness.Pair{Name: name, Side: l.Name, Against: plainSide,
			Goal: harness.When(goals, toPlain[n])})
		add(harness.Pair{Side: l.Name, Against: rueidisWait,
			Goal: harness.When(goals && n >= 64, harness.AtLeast(0.9, 1))})
		add(harness.Pair{Side: l.Name, Against: autoSide})
		add(harness.Pair{Name: title + ", latency p50", Side: l.Name, Against: plainSide,
			Metric: harness.P50})
		add(harness.Pair{Name: title + ", latency p99", Side: l.Name, Against: plainSide,
			Metric: harness.P99})
	}
	for _, side := range []string{rueidisEager, rueidisWait, autoSide} {
		add(harness.Pair{Side: side, Against: plainSide})
	}
	return pairs
}

// doSide is what most programs have: Do, over the layout that is the default.
const doSide = "onceward Do, default layout"

// busy: a lone caller on a machine whose other core has work, as a loaded server's cores have. A
// caller that wakes other goroutines and threads pays for it here; with an idle core it does not.
func (e *env) busy() []harness.Group {
	return []harness.Group{{Workload: "callers-busy", X: 1,
		Title: "lone caller, new key, other core busy", Open: e.openBusy}}
}

func (e *env) openBusy(ctx context.Context, s *harness.Setup) {
	server.Busy(s)
	d := rich().Open(ctx, s, e.redis.Addr, 0)
	s.Side(doSide, work.Callers(1, func(ctx context.Context, key string) {
		ran := false
		must.Get(dedup.Do(ctx, d.Deduper, key, func(context.Context) (struct{}, error) {
			ran = true
			return struct{}{}, nil
		}))
		if !ran {
			must.Do(fmt.Errorf("%s: it did not run", key))
		}
	}))
	s.Pair(harness.Pair{Side: doSide, Against: plainSide, Goal: harness.AtLeast(0.93, 1)},
		harness.Pair{Name: "lone caller, other core busy, client CPU", Side: doSide,
			Against: plainSide, Metric: harness.ClientMicros, Goal: harness.AtMost(1.15, 1)},
		harness.Pair{Side: rueidisWait, Against: plainSide})
	for _, l := range delayedLayouts() {
		s.Pair(harness.Pair{Side: l.Name, Against: plainSide})
	}
	openCallers(ctx, s, e.redis.Addr, 1, delayedLayouts())
}

// delayedLayouts take part where the network decides.
func delayedLayouts() []work.Layout {
	return work.Without(redisadapter.Compact, redisadapter.Mixed)
}

// delayed: the server is 2 ms away, behind a proxy.
func (e *env) delayed() []harness.Group {
	proxy := func(ctx context.Context, s *harness.Setup) string {
		p := server.NewDelay(ctx, e.redis.Addr, time.Millisecond)
		s.Defer(p.Close)
		return p.Addr()
	}
	var groups []harness.Group
	for _, n := range []int{1, 64, 256, 1024} {
		groups = append(groups, harness.Group{Workload: "callers-2ms", X: float64(n),
			Title: callersTitle(n) + ", 2 ms RTT", Detail: n == 1 || n == 64,
			Open: func(ctx context.Context, s *harness.Setup) {
				for _, l := range delayedLayouts() {
					s.Pair(harness.Pair{Side: l.Name, Against: rueidisWait, Goal: harness.When(
						n >= 64 && l.Kind == plain().Kind, harness.AtLeast(0.85, 1))},
						harness.Pair{Side: l.Name, Against: plainSide},
						harness.Pair{Side: l.Name, Against: autoSide})
				}
				for _, side := range []string{rueidisWait, rueidisEager, autoSide} {
					s.Pair(harness.Pair{Side: side, Against: plainSide})
				}
				openCallers(ctx, s, proxy(ctx, s), n, delayedLayouts())
			}})
	}
	return append(groups, harness.Group{Workload: "batch-2ms", X: work.Typical,
		Title: fmt.Sprintf("batch %d, new keys, 2 ms RTT", work.Typical),
		Open: func(ctx context.Context, s *harness.Setup) {
			openDelayedBatch(ctx, inBatches(s, workers, work.Typical), proxy(ctx, s))
		}})
}

func openDelayedBatch(ctx context.Context, b batching, addr string) {
	b.side(rawSide, work.DialRaw(ctx, b.Setup, addr, workers).Cycle("1"))
	for _, l := range delayedLayouts() {
		d := l.Open(ctx, b.Setup, addr, 0)
		b.side(l.Name, d.Batch(work.New, nil))
		if l.Kind == plain().Kind {
			b.Side(mergedSide, d.Merged(workers))
			b.Pair(harness.Pair{
				Name: "batch 256, completions merged with the next claims, 2 ms RTT",
				Side: mergedSide, Against: l.Name, Text: "in two round trips"})
		}
		b.Pair(harness.Pair{Side: l.Name, Against: rawSide, Text: rawPipelines})
	}
}

// peers: libraries that people use for the same job, one key per call.
func (e *env) peers() (groups []harness.Group) {
	for _, n := range []int{1, 16, 128} {
		title := fmt.Sprintf("peers, %d callers, new keys", n)
		if n == 1 {
			title = "peers, one caller, new keys"
		}
		groups = append(groups, harness.Group{
			Workload: "peers", X: float64(n), Title: title, Detail: n != 16,
			Open: func(ctx context.Context, s *harness.Setup) { e.openPeers(ctx, s, n) },
		})
	}
	return groups
}

func (e *env) openPeers(ctx context.Context, s *harness.Setup, n int) {
	s.Multiple = n
	client := server.NewClient(s, e.redis.Addr, 0, n+16)
	ours := plain().Open(ctx, s, e.redis.Addr, 0).One(work.New)
	for _, p := range []peer.Peer{
		peer.Naive(client), {Name: plain().Name, Cycle: ours}, peer.Plain(client),
		peer.Redislock(client), peer.Redsync(client), peer.Fiber(client), peer.Watermill(),
	} {
		s.Side(p.Name, work.Callers(n, p.Cycle))
		if p.Name != naiveCalls {
			s.Pair(harness.Pair{Side: p.Name, Against: naiveCalls})
		}
	}
}
