package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/redisadapter"
)

// oneWay is what the network adds in each direction.
const oneWay = time.Millisecond

// delayedLayouts take part where the network decides.
var delayedLayouts = others(redisadapter.Compact, redisadapter.Mixed)

// delayed: the server is 2 ms away.
func (e *Env) delayed() []harness.Group {
	var groups []harness.Group
	for _, n := range []int{1, 64, 256, 1024} {
		title := fmt.Sprintf("%d callers, new keys, 2 ms RTT", n)
		if n == 1 {
			title = "lone caller, new key, 2 ms RTT"
		}
		groups = append(groups, harness.Group{
			Workload: "callers-2ms", X: float64(n), Title: title, Detail: n == 1 || n == 64,
			Open: func(ctx context.Context) (harness.Setup, error) { return e.openDelayedCallers(ctx, title, n) },
		})
	}
	return append(groups, harness.Group{
		Workload: "batch-2ms", X: typical, Title: fmt.Sprintf("batch %d, new keys, 2 ms RTT", typical), Open: e.openDelayedBatch,
	})
}

func (e *Env) openDelayedCallers(ctx context.Context, title string, n int) (harness.Setup, error) {
	proxy, err := server.NewDelay(ctx, e.Server.Addr, oneWay)
	if err != nil {
		return harness.Setup{}, err
	}
	s, err := openCallers(ctx, proxy.Addr(), n, delayedLayouts)
	if err != nil {
		_ = proxy.Close()
		return s, err
	}
	inner := s.Close
	s.Close = func() { inner(); _ = proxy.Close() }
	var toRueidis harness.Goal
	if n >= 64 {
		toRueidis = harness.AtLeast(0.85, 1)
	}
	for _, l := range delayedLayouts {
		s.Pairs = append(s.Pairs,
			harness.Pair{Name: title, Side: l.name, Against: rueidisWait, Goal: when(l.kind == plain().kind, toRueidis)},
			harness.Pair{Name: title, Side: l.name, Against: plainSide},
			harness.Pair{Name: title, Side: l.name, Against: autoSide})
	}
	for _, side := range []string{rueidisWait, "rueidis", autoSide} {
		s.Pairs = append(s.Pairs, harness.Pair{Name: title, Side: side, Against: plainSide})
	}
	return s, nil
}

func (e *Env) openDelayedBatch(ctx context.Context) (harness.Setup, error) {
	var opened closing
	proxy, err := server.NewDelay(ctx, e.Server.Addr, oneWay)
	if err != nil {
		return harness.Setup{}, err
	}
	opened.add(func() { _ = proxy.Close() })
	raw, err := dialRaw(ctx, proxy.Addr(), workers)
	if err != nil {
		opened.all()
		return harness.Setup{}, err
	}
	opened.add(raw.close)
	s := harness.Setup{Multiple: workers * typical, Sides: []harness.Side{{Name: rawSide, Run: inBatches(workers, typical, raw.cycle("1"))}}}
	for _, l := range delayedLayouts {
		o, err := l.open(ctx, proxy.Addr(), 0)
		if err != nil {
			opened.all()
			return harness.Setup{}, err
		}
		opened.add(o.close)
		s.Sides = append(s.Sides, harness.Side{Name: l.name, Run: inBatches(workers, typical, o.cycles(nil))})
		if l.name == plain().name {
			s.Sides = append(s.Sides, harness.Side{Name: mergedSide, Run: o.merged})
			s.Pairs = append(s.Pairs, harness.Pair{Name: "batch 256, completions merged with the next claims, 2 ms RTT", Side: mergedSide, Against: l.name, Text: "in two round trips"})
		}
		s.Pairs = append(s.Pairs, harness.Pair{Name: fmt.Sprintf("batch %d, new keys, 2 ms RTT", typical), Side: l.name, Against: rawSide, Text: rawPipelines})
	}
	s.Close = opened.all
	return s, nil
}
