package harness

import (
	"cmp"
	"fmt"
	"runtime"
)

// rows are the group's pairs, then every side that no pair is about.
func (g Group) rows(s *Setup, samples map[string][]Sample) []Row {
	var rows []Row
	paired := make(map[string]bool)
	for _, p := range s.Pairs {
		paired[p.Side] = true
		rows = append(rows, g.row(p, samples))
	}
	for _, side := range s.Sides {
		if !paired[side.Name] {
			rows = append(rows, g.row(Pair{Side: side.Name}, samples))
		}
	}
	return rows
}

func (g Group) row(p Pair, samples map[string][]Sample) Row {
	of := func(side string) (all []float64) {
		for _, s := range samples[side] {
			all = append(all, metrics[p.Metric].of(s))
		}
		return all
	}
	mine := of(p.Side)
	r := Row{
		Name: cmp.Or(p.Name, g.Title), Value: Median(mine), Unit: p.Metric.Unit(),
		Rounds: len(mine), Goal: p.Goal.String(), Workload: g.Workload, Side: p.Side, X: g.X,
		Usage: UsageOf(samples[p.Side]),
	}
	if p.Metric == Messages {
		r.Binds = binds(r, runtime.NumCPU())
	} else { // they are of no interest
		r.BrokerUS, r.BusyUS = 0, 0
	}
	if p.Against != "" {
		other := of(p.Against)
		r.Against = cmp.Or(p.Text, p.Against)
		if p.Or != "" {
			or := of(p.Or)
			if Median(or) < Median(other) {
				r.Against = p.Or
			}
			other = both(other, or, func(a, b float64) float64 { return min(a, b) })
		}
		if p.And != "" {
			other = both(other, of(p.And), oneAfterOther)
		}
		ratios := Paired(mine, other)
		r.AgainstValue, r.Ratio, r.Spread = Median(other), Median(ratios), Spread(ratios)
	}
	// A ratio of 0 means that nothing was measured on one side.
	r.OK = p.Goal.Reached(r.Value, r.Ratio) && (p.Goal.value || p.Goal == (Goal{}) || r.Ratio != 0)
	return r
}

// both joins the rates of two sides, round by round.
func both(a, b []float64, join func(a, b float64) float64) []float64 {
	joined := make([]float64, min(len(a), len(b)))
	for i := range joined {
		joined[i] = join(a[i], b[i])
	}
	return joined
}

// oneAfterOther is the rate of a program that does what a and b do, one after the other.
func oneAfterOther(a, b float64) float64 {
	return over(a*b, a+b)
}

// full is the share of a processor from which on it counts as the limit: measuring and the
// kernel take the rest.
const full = 0.85

// binds says what bounds a row's rate on a machine of so many cores. Redis executes commands
// on one thread, so that thread can be the limit while cores are free.
func binds(r Row, cores int) string {
	cpu := func(each float64) float64 { return each * r.Value / 1e6 }
	client, redis, broker := cpu(r.ClientUS), cpu(r.ServerUS), cpu(r.BrokerUS)
	ours := client + redis + broker
	others := max(0, cpu(r.BusyUS)-ours)
	limit := "no processor is full, it waits in part"
	switch {
	case redis >= full:
		limit = "the thread of Redis"
	case ours+others < full*float64(cores):
	case client >= max(redis, broker):
		limit = "CPU of the client"
	case redis > broker:
		limit = "CPU of Redis"
	default:
		limit = "CPU of the broker"
	}
	return fmt.Sprintf(
		"%s (of %d cores: client %.2f, Redis %.2f, broker %.2f, other programs %.2f)", limit,
		cores, client, redis, broker, others)
}
