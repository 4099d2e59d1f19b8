package redisbench

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
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
func (e *env) callers(all *harness.Groups) {
	for _, n := range []int{1, 4, 16, 64, 256, 1024} {
		all.Add("callers", n, callersTitle(n), func(ctx context.Context, s *harness.Setup) {
			compareCallers(s, callersTitle(n), n)
			openCallers(ctx, s, e.redis.Addr, n, work.Layouts)
		}).Detail = n == 4 || n == 16
	}
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

// busy: a lone caller on a machine whose other core has work, as a loaded server's cores have. A
// caller that wakes other goroutines and threads pays for it here; with an idle core it does not.
func (e *env) busy(all *harness.Groups) {
	all.Add("callers-busy", 1, "lone caller, new key, other core busy", e.openBusy)
}

func (e *env) openBusy(ctx context.Context, s *harness.Setup) {
	server.Busy(s)
	full := []work.Layout{work.Full}
	s.Compare(work.Full.Name, plainSide).Wants(">= 0.93x (stretch 1x)")
	s.Compare(work.Full.Name, plainSide).Called("lone caller, other core busy, client CPU").
		In(harness.ClientMicros).Wants("<= 1.15x (stretch 1x)")
	s.Compare(rueidisWait, plainSide)
	openCallers(ctx, s, e.redis.Addr, 1, full)
}

// delayed: the server is 2 ms away, behind a proxy: the network decides.
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
			openDelayedBatch(ctx, inBatches(s, workers, work.Typical), proxy(ctx, s))
		})
}

func openDelayedBatch(ctx context.Context, b batching, addr string) {
	b.side(rawSide, work.DialRaw(ctx, b.Setup, addr, workers).Cycle("1"))
	d := work.Full.Open(ctx, b.Setup, addr, 0)
	b.side(work.Full.Name, d.Batch(work.New, nil))
	b.Compare(work.Full.Name, rawSide).As(rawPipelines)
	b.Side(mergedSide, d.Merged(workers))
	b.Compare(mergedSide, work.Full.Name).As("in two round trips").
		Called("batch 256, completions merged with the next claims, 2 ms RTT")
}

// peers: libraries that people use for the same job, one key per call.
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
