package workload

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
)

// peers: libraries that people use for the same job, one key per call.
func (e *Env) peers() []harness.Group {
	var groups []harness.Group
	for _, n := range []int{1, 16, 128} {
		title := fmt.Sprintf("peers, %d callers, new keys", n)
		if n == 1 {
			title = "peers, one caller, new keys"
		}
		groups = append(groups, harness.Group{
			Workload: "peers", X: float64(n), Title: title, Detail: n != 16,
			Open: func(ctx context.Context) (harness.Setup, error) { return e.openPeers(ctx, title, n) },
		})
	}
	return groups
}

func (e *Env) openPeers(ctx context.Context, title string, n int) (harness.Setup, error) {
	client := e.Server.Client(0, n+16)
	mill, err := peer.Watermill()
	if err != nil {
		_ = client.Close()
		return harness.Setup{}, err
	}
	o, err := plain().open(ctx, e.Server.Addr, 0)
	if err != nil {
		_ = client.Close()
		return harness.Setup{}, err
	}
	s := harness.Setup{Multiple: n, Close: func() { o.close(); _ = client.Close() }}
	for _, p := range []peer.Peer{
		peer.Naive(client), {Name: plain().name, Cycle: o.cycle}, peer.Plain(client), peer.Redislock(client), peer.Redsync(client), peer.Fiber(client), mill,
	} {
		s.Sides = append(s.Sides, harness.Side{Name: p.Name, Run: callers(n, p.Cycle)})
		if p.Name != naiveCalls {
			s.Pairs = append(s.Pairs, harness.Pair{Name: title, Side: p.Name, Against: naiveCalls})
		}
	}
	return s, nil
}
