package front

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// rateKeys is the largest window that rates are counted over: they do not depend on it.
const rateKeys = 1_000_000

// rates: how often an id that was never added is Maybe, beside what was planned.
func (e *Env) rates() []harness.Group {
	var all []harness.Group
	for _, goal := range []float64{1e-2, 1e-3, 1e-4} {
		all = append(all, harness.Group{
			Workload: "false positives", X: goal, Title: fmt.Sprintf("false positives, planned %g", goal),
			Measure: func(context.Context) ([]harness.Row, error) { return e.measureRate(goal) },
		})
	}
	return all
}

func (e *Env) measureRate(goal float64) ([]harness.Row, error) {
	o := options(min(rateKeys, e.most()))
	o.FalsePositives = goal
	f, err := filled(o)
	if err != nil {
		return nil, err
	}
	asked := uint64(float64(e.Hits) / goal)
	observed, planned := float64(maybes(f, asked))/float64(asked), f.Plan().FalsePositives
	estimated := f.Stats().Estimated
	row := func(what string, value, against float64, text string) harness.Row {
		r := harness.Row{
			Name: fmt.Sprintf("false positives at a goal of %g, %s", goal, what), Workload: "false positives", Side: what, X: goal,
			Value: value * 1e6, Unit: "in a million", Against: text, AgainstValue: against * 1e6, Ratio: value / against, Rounds: 1, OK: true,
		}
		r.Spread = [2]float64{r.Ratio, r.Ratio}
		return r
	}
	counted := row("observed", observed, planned, "planned")
	most := harness.AtMost(1.5, 0)
	counted.Goal, counted.OK = most.String(), most.Reached(observed, counted.Ratio)
	return []harness.Row{counted, row("estimated from the bits", estimated, observed, "observed")}, nil
}

// maybes counts the answers Maybe of n ids that nobody added.
func maybes(f *bloom.Filter, n uint64) (wrong int) {
	batch := make([]bloom.Query, batchIDs)
	for at := uint64(0); at < n; at += batchIDs {
		for i := range batch {
			batch[i].ID = unknown(at + uint64(i))
		}
		f.WhereAll(batch[:min(batchIDs, n-at)])
		for _, q := range batch[:min(batchIDs, n-at)] {
			if q.Answer == bloom.Maybe {
				wrong++
			}
		}
	}
	return wrong
}
