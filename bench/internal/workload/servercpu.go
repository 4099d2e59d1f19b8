package workload

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
)

// compactCPU: what a cycle costs the server whose memory Compact saves. Half of the buckets'
// room is taken before, so that they are on average what they are over a window.
func (e *Env) compactCPU() []harness.Group {
	title := fmt.Sprintf("server CPU per cycle, compact, %s keys remembered", short(e.Fill/5))
	return []harness.Group{{Workload: "compact-cpu", X: float64(e.Fill / 5), Title: title, Memory: true, Open: e.openCompactCPU}}
}

func (e *Env) openCompactCPU(ctx context.Context) (harness.Setup, error) {
	filled := e.Fill / 5
	var opened closing
	// A timing adds a tenth of what is there: with its warm-up, a run fills the rest.
	s := harness.Setup{Multiple: workers * typical, MaxKeys: max(filled/10, workers*typical)}
	for _, l := range []layout{plain(), compact()} {
		o, err := l.expecting(2*filled).open(ctx, e.Server.Addr, 0, long)
		if err != nil {
			opened.all()
			return s, err
		}
		opened.add(o.close)
		if err := o.fill(ctx, filled); err != nil {
			opened.all()
			return s, err
		}
		s.Sides = append(s.Sides, harness.Side{Name: l.name, Run: inBatches(workers, typical, o.cycles(nil))})
	}
	s.Pairs = []harness.Pair{
		{Name: "server CPU per cycle, compact against the plain string layout", Side: compact().name, Against: plain().name,
			Metric: harness.ServerMicros, Goal: harness.AtMost(1, 0.75)},
		{Name: "throughput, compact against the plain string layout", Side: compact().name, Against: plain().name},
	}
	s.Close = opened.all
	return s, nil
}
