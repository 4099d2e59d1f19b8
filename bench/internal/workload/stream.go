package workload

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/dedup"
)

// Sides of a stream.
const (
	cacheOff = "onceward, no local cache"
	cacheOn  = "onceward, local cache"
)

// mode is how a stream is consumed.
type mode struct {
	workload, text string
	callers        int // 0: in batches
	goals          map[int]harness.Goal
}

// streams: a share of the keys are duplicates of recent ones; with and without the cache of
// finished keys in this process.
func (e *Env) streams() []harness.Group {
	var groups []harness.Group
	for _, m := range []mode{
		{workload: "stream-1", text: "one caller", callers: 1, goals: map[int]harness.Goal{
			0: harness.AtLeast(0.95, 1), 50: harness.AtLeast(1.2, 1.5), 90: harness.AtLeast(5, 6),
		}},
		{workload: "stream-64", text: "64 callers", callers: 64},
		{workload: "stream-batch", text: fmt.Sprintf("batches of %d", typical)},
	} {
		for _, share := range []int{0, 10, 50, 90} {
			title := fmt.Sprintf("stream with %d %% recent duplicates, %s", share, m.text)
			groups = append(groups, harness.Group{
				Workload: m.workload, X: float64(share), Title: title, Detail: share == 10 || (m.callers != 1 && share != 50),
				Open: func(ctx context.Context) (harness.Setup, error) { return e.openStream(ctx, m, share, title) },
			})
		}
	}
	return groups
}

func (e *Env) openStream(ctx context.Context, m mode, share int, title string) (harness.Setup, error) {
	var opened closing
	multiple, gap := max(m.callers, 1), 2*max(m.callers, 1)
	if m.callers == 0 {
		multiple, gap = workers*typical, workers*typical
	}
	s := harness.Setup{
		Multiple: multiple, MinKeys: 10 * gap, // the first gap has no duplicates
		Keys: func(n int) []string { return harness.Recent(n, share, gap) },
		Pairs: []harness.Pair{{
			Name: fmt.Sprintf("%s, local cache", title), Side: cacheOn, Against: cacheOff, Text: "the same without", Goal: m.goals[share],
		}},
	}
	for _, side := range []struct {
		name string
		with []func(*dedup.Config)
	}{{name: cacheOff}, {cacheOn, []func(*dedup.Config){cached}}} {
		o, err := plain().open(ctx, e.Server.Addr, 0, side.with...)
		if err != nil {
			opened.all()
			return s, err
		}
		opened.add(o.close)
		run := callers(max(m.callers, 1), o.see)
		if m.callers == 0 {
			run = inBatches(workers, typical, func(ctx context.Context, _ int, keys []string) error { return o.seeBatch(ctx, keys, nil) })
		}
		s.Sides = append(s.Sides, harness.Side{Name: side.name, Run: run})
	}
	s.Close = opened.all
	return s, nil
}
