package redisbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
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
	plainSide   = "plain go-redis"
	autoSide    = "go-redis AutoPipeline"
	rueidisWait = "rueidis, MaxFlushDelay 20µs"
	naiveCalls  = "naive GET, SET NX, SET"
)

// callers: each goroutine claims and completes one key after another.
func (e *env) callers() []harness.Group {
	var groups []harness.Group
	for _, n := range []int{1, 4, 16, 64, 256, 1024} {
		title := fmt.Sprintf("%d callers, new keys", n)
		if n == 1 {
			title = "lone caller, new key"
		}
		groups = append(groups, harness.Group{
			Workload: "callers", X: float64(n), Title: title, Detail: n == 4 || n == 16,
			Open: func(ctx context.Context, s *harness.Setup) error {
				s.Pair(callerPairs(title, n)...)
				return openCallers(ctx, s, e.redis.Addr, n, work.Without(mixedIsCompact...))
			},
		})
	}
	return groups
}

// peerPool is how many connections plain go-redis has: one for every caller, up to what
// people give a process. Ours has the client's default.
func peerPool(callers int) int { return min(max(callers, 16), 256) }

// openCallers connects all sides to addr.
func openCallers(ctx context.Context, s *harness.Setup, addr string,
	n int, ours []work.Layout) error {
	s.Multiple = n
	client := server.NewClient(addr, 0, peerPool(n))
	s.Defer(client.Close)
	peers := []peer.Peer{peer.Plain(client)}
	for _, l := range ours {
		d, err := l.Open(ctx, s, addr, 0)
		if err != nil {
			return err
		}
		peers = append(peers, peer.Peer{Name: l.Name, Cycle: d.One(work.New)})
	}
	eager, err := peer.Rueidis(addr, 0)
	waiting, failed := peer.Rueidis(addr, flushDelay)
	auto, refused := peer.AutoPipeline(client)
	peers = append(peers, eager, waiting, auto)
	if n == 1 {
		peers = append(peers, peer.Naive(client))
	}
	for _, p := range peers {
		if p.Close != nil {
			s.Defer(func() error { p.Close(); return nil })
		}
		s.Side(p.Name, work.Callers(n, p.Cycle))
	}
	return errors.Join(err, failed, refused)
}

func callerPairs(title string, n int) []harness.Pair {
	const plainText = "plain go-redis two-command cycle"
	toPlain := map[int]harness.Goal{
		1: harness.AtLeast(0.95, 1), 64: harness.AtLeast(2.5, 4), 256: harness.AtLeast(4, 6),
		1024: harness.AtLeast(5.5, 8),
	}
	toRueidis := harness.When(n >= 64, harness.AtLeast(0.9, 1))
	var pairs []harness.Pair
	for _, l := range work.Without(mixedIsCompact...) {
		// they compare two plain commands with two plain commands
		name, goals := title, l.Kind == plain().Kind
		if n == 1 {
			pairs = append(pairs, harness.Pair{Side: l.Name, Against: naiveCalls,
				Text: "naive three round trips",
				Goal: harness.When(goals, harness.AtLeast(1.35, 1.5))})
			name = "lone caller through the coalescer"
		}
		pairs = append(pairs,
			harness.Pair{Name: name, Side: l.Name, Against: plainSide, Text: plainText,
				Goal: harness.When(goals, toPlain[n])},
			harness.Pair{Side: l.Name, Against: rueidisWait, Goal: harness.When(goals, toRueidis)},
			harness.Pair{Side: l.Name, Against: autoSide},
			harness.Pair{Name: title + ", latency p50", Side: l.Name, Against: plainSide,
				Text: plainText, Metric: harness.P50},
			harness.Pair{Name: title + ", latency p99", Side: l.Name, Against: plainSide,
				Text: plainText, Metric: harness.P99})
	}
	for _, side := range []string{"rueidis", rueidisWait, autoSide} {
		pairs = append(pairs, harness.Pair{Side: side, Against: plainSide, Text: plainText})
	}
	return pairs
}

// doSide is what most programs have: Do, over the layout that is the default.
const doSide = "onceward Do, default layout"

// busy: a lone caller on a machine whose other core has work, as a loaded server's cores have. A
// caller that wakes other goroutines and threads pays for it here; with an idle core it does not.
func (e *env) busy() []harness.Group {
	return []harness.Group{{Workload: "callers-busy", X: 1,
		Title: "lone caller, new key, other core busy",
		Open: func(ctx context.Context, s *harness.Setup) error {
			stop, err := server.Busy()
			if err != nil {
				return err
			}
			s.Defer(stop)
			d, err := rich().Open(ctx, s, e.redis.Addr, 0)
			if err != nil {
				return err
			}
			do := func(ctx context.Context, key string) error {
				ran := false
				_, err := dedup.Do(ctx, d.Deduper, key, func(context.Context) (struct{}, error) {
					ran = true
					return struct{}{}, nil
				})
				if err == nil && !ran {
					err = fmt.Errorf("%s: it did not run", key)
				}
				return err
			}
			s.Side(doSide, work.Callers(1, do))
			s.Pair(harness.Pair{Side: doSide, Against: plainSide, Goal: harness.AtLeast(0.93, 1)},
				harness.Pair{Name: "lone caller, other core busy, client CPU", Side: doSide,
					Against: plainSide, Metric: harness.ClientMicros,
					Goal: harness.AtMost(1.15, 1)},
				harness.Pair{Side: rueidisWait, Against: plainSide})
			for _, l := range delayedLayouts() {
				s.Pair(harness.Pair{Side: l.Name, Against: plainSide})
			}
			return openCallers(ctx, s, e.redis.Addr, 1, delayedLayouts())
		}}}
}

// oneWay is what the network adds in each direction.
const oneWay = time.Millisecond

// delayedLayouts take part where the network decides.
func delayedLayouts() []work.Layout {
	return work.Without(redisadapter.Compact, redisadapter.Mixed)
}

// delayed: the server is 2 ms away.
func (e *env) delayed() []harness.Group {
	// away opens a group behind a proxy.
	away := func(open func(ctx context.Context, s *harness.Setup,
		addr string) error) func(context.Context, *harness.Setup) error {
		return func(ctx context.Context, s *harness.Setup) error {
			proxy, err := server.NewDelay(ctx, e.redis.Addr, oneWay)
			if err != nil {
				return err
			}
			s.Defer(proxy.Close)
			return open(ctx, s, proxy.Addr())
		}
	}
	var groups []harness.Group
	for _, n := range []int{1, 64, 256, 1024} {
		title := fmt.Sprintf("%d callers, new keys, 2 ms RTT", n)
		if n == 1 {
			title = "lone caller, new key, 2 ms RTT"
		}
		groups = append(groups, harness.Group{Workload: "callers-2ms", X: float64(n), Title: title,
			Detail: n == 1 || n == 64,
			Open: away(func(ctx context.Context, s *harness.Setup, addr string) error {
				for _, l := range delayedLayouts() {
					goal := harness.When(n >= 64 && l.Kind == plain().Kind,
						harness.AtLeast(0.85, 1))
					s.Pair(harness.Pair{Side: l.Name, Against: rueidisWait, Goal: goal},
						harness.Pair{Side: l.Name, Against: plainSide},
						harness.Pair{Side: l.Name, Against: autoSide})
				}
				for _, side := range []string{rueidisWait, "rueidis", autoSide} {
					s.Pair(harness.Pair{Side: side, Against: plainSide})
				}
				return openCallers(ctx, s, addr, n, delayedLayouts())
			})})
	}
	return append(groups, harness.Group{
		Workload: "batch-2ms", X: work.Typical,
		Title: fmt.Sprintf("batch %d, new keys, 2 ms RTT", work.Typical),
		Open:  away(openDelayedBatch),
	})
}

func openDelayedBatch(ctx context.Context, s *harness.Setup, addr string) error {
	s.Multiple = workers * work.Typical
	raw, err := work.DialRaw(ctx, s, addr, workers)
	if err != nil {
		return err
	}
	s.Side(rawSide, work.InBatches(workers, work.Typical, raw.Cycle("1")))
	for _, l := range delayedLayouts() {
		d, err := l.Open(ctx, s, addr, 0)
		if err != nil {
			return err
		}
		s.Side(l.Name, work.InBatches(workers, work.Typical, d.Batch(work.New, nil)))
		if l.Kind == plain().Kind {
			s.Side(mergedSide, d.Merged(workers))
			s.Pair(harness.Pair{
				Name: "batch 256, completions merged with the next claims, 2 ms RTT",
				Side: mergedSide, Against: l.Name, Text: "in two round trips"})
		}
		s.Pair(harness.Pair{Side: l.Name, Against: rawSide, Text: rawPipelines})
	}
	return nil
}

// peers: libraries that people use for the same job, one key per call.
func (e *env) peers() []harness.Group {
	var groups []harness.Group
	for _, n := range []int{1, 16, 128} {
		title := fmt.Sprintf("peers, %d callers, new keys", n)
		if n == 1 {
			title = "peers, one caller, new keys"
		}
		groups = append(groups, harness.Group{
			Workload: "peers", X: float64(n), Title: title, Detail: n != 16,
			Open: func(ctx context.Context, s *harness.Setup) error {
				return e.openPeers(ctx, s, n)
			},
		})
	}
	return groups
}

func (e *env) openPeers(ctx context.Context, s *harness.Setup, n int) error {
	s.Multiple = n
	client := server.NewClient(e.redis.Addr, 0, n+16)
	s.Defer(client.Close)
	mill, err := peer.Watermill()
	if err != nil {
		return err
	}
	d, err := plain().Open(ctx, s, e.redis.Addr, 0)
	if err != nil {
		return err
	}
	for _, p := range []peer.Peer{
		peer.Naive(client), {Name: plain().Name, Cycle: d.One(work.New)}, peer.Plain(client),
		peer.Redislock(client), peer.Redsync(client), peer.Fiber(client), mill,
	} {
		s.Side(p.Name, work.Callers(n, p.Cycle))
		if p.Name != naiveCalls {
			s.Pair(harness.Pair{Side: p.Name, Against: naiveCalls})
		}
	}
	return nil
}
