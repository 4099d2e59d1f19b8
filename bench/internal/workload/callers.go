package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
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
func (e *Env) callers() []harness.Group {
	var groups []harness.Group
	for _, n := range []int{1, 4, 16, 64, 256, 1024} {
		title := fmt.Sprintf("%d callers, new keys", n)
		if n == 1 {
			title = "lone caller, new key"
		}
		groups = append(groups, harness.Group{
			Workload: "callers", X: float64(n), Title: title, Detail: n == 4 || n == 16,
			Open: func(ctx context.Context) (harness.Setup, error) {
				s, err := openCallers(ctx, e.Server.Addr, n, callerLayouts)
				s.Pairs = callerPairs(title, n)
				return s, err
			},
		})
	}
	return groups
}

// callerLayouts take part with one key per call; Mixed does here what Compact does.
var callerLayouts = others(redisadapter.Mixed)

// peerPool is how many connections plain go-redis has: one for every caller, up to what
// people give a process. Ours has the client's default.
func peerPool(callers int) int { return min(max(callers, 16), 256) }

// openCallers connects all sides to addr.
func openCallers(ctx context.Context, addr string, n int, ours []layout) (harness.Setup, error) {
	var opened closing
	fail := func(err error) (harness.Setup, error) {
		opened.all()
		return harness.Setup{}, err
	}
	client := server.NewClient(addr, 0, peerPool(n))
	opened.add(func() { _ = client.Close() })
	peers := []peer.Peer{peer.Plain(client)}
	for _, l := range ours {
		o, err := l.open(ctx, addr, 0)
		if err != nil {
			return fail(err)
		}
		opened.add(o.close)
		peers = append(peers, peer.Peer{Name: l.name, Cycle: o.cycle})
	}
	for _, connect := range []func() (peer.Peer, error){
		func() (peer.Peer, error) { return peer.Rueidis(addr, 0) },
		func() (peer.Peer, error) { return peer.Rueidis(addr, flushDelay) },
		func() (peer.Peer, error) { return peer.AutoPipeline(client) },
	} {
		p, err := connect()
		if err != nil {
			return fail(err)
		}
		opened.add(p.Close)
		peers = append(peers, p)
	}
	if n == 1 {
		peers = append(peers, peer.Naive(client))
	}
	s := harness.Setup{Multiple: n, Close: opened.all}
	for _, p := range peers {
		s.Sides = append(s.Sides, harness.Side{Name: p.Name, Run: callers(n, p.Cycle)})
	}
	return s, nil
}

func callerPairs(title string, n int) []harness.Pair {
	const plainText = "plain go-redis two-command cycle"
	toPlain := map[int]harness.Goal{
		1: harness.AtLeast(0.95, 1), 64: harness.AtLeast(2.5, 4), 256: harness.AtLeast(4, 6), 1024: harness.AtLeast(5.5, 8),
	}
	var toRueidis harness.Goal
	if n >= 64 {
		toRueidis = harness.AtLeast(0.9, 1)
	}
	var pairs []harness.Pair
	for _, l := range callerLayouts {
		name, goals := title, l.kind == plain().kind // they compare two plain commands with two plain commands
		if n == 1 {
			pairs = append(pairs, harness.Pair{Name: title, Side: l.name, Against: naiveCalls, Text: "naive three round trips", Goal: when(goals, harness.AtLeast(1.35, 1.5))})
			name = "lone caller through the coalescer"
		}
		pairs = append(pairs,
			harness.Pair{Name: name, Side: l.name, Against: plainSide, Text: plainText, Goal: when(goals, toPlain[n])},
			harness.Pair{Name: title, Side: l.name, Against: rueidisWait, Goal: when(goals, toRueidis)},
			harness.Pair{Name: title, Side: l.name, Against: autoSide},
			harness.Pair{Name: title + ", latency p50", Side: l.name, Against: plainSide, Text: plainText, Metric: harness.P50},
			harness.Pair{Name: title + ", latency p99", Side: l.name, Against: plainSide, Text: plainText, Metric: harness.P99})
	}
	for _, side := range []string{"rueidis", rueidisWait, autoSide} {
		pairs = append(pairs, harness.Pair{Name: title, Side: side, Against: plainSide, Text: plainText})
	}
	return pairs
}

// when returns the goal if it holds here.
func when(holds bool, g harness.Goal) harness.Goal {
	if !holds {
		return harness.Goal{}
	}
	return g
}
