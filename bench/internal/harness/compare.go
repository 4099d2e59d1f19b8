package harness

import "runtime"

// rows are the group's pairs, then every side that no pair is about.
func (g Group) rows(s Setup, samples map[string][]Sample) []Row {
	var rows []Row
	told := make(map[string]bool)
	for _, p := range s.Pairs {
		told[p.Side] = true
		rows = append(rows, g.row(p, samples))
	}
	for _, side := range s.Sides {
		if !told[side.Name] {
			rows = append(rows, g.row(Pair{Name: g.Title, Side: side.Name}, samples))
		}
	}
	return rows
}

func (g Group) row(p Pair, samples map[string][]Sample) Row {
	ours := samples[p.Side]
	mine, other := pick(ours, p.Metric), pick(samples[p.Against], p.Metric)
	if p.Or != "" {
		other = slower(other, pick(samples[p.Or], p.Metric))
	}
	if p.And != "" {
		other = together(other, pick(samples[p.And], p.Metric))
	}
	r := Row{
		Name: p.Name, Value: Median(mine), Unit: p.Metric.Unit(), Against: p.Against, Rounds: len(mine),
		Goal: p.Goal.String(), Workload: g.Workload, Side: p.Side, X: g.X,
		ClientUS: Median(pick(ours, clientMicros)), ServerUS: Median(pick(ours, ServerMicros)),
		Allocs: Median(pick(ours, Allocs)), P50Micros: Median(pick(ours, P50)), P99Micros: Median(pick(ours, P99)),
	}
	if p.Metric == Messages {
		r.BrokerUS = Median(pick(ours, brokerMicros))
		r.BusyUS = Median(pick(ours, busyMicros))
		r.Binds = binds(r, runtime.NumCPU())
	}
	if p.Against != "" {
		if p.Text != "" {
			r.Against = p.Text
		}
		if theirs := pick(samples[p.Against], p.Metric); p.Or != "" && Median(pick(samples[p.Or], p.Metric)) < Median(theirs) {
			r.Against = p.Or
		}
		ratios := Paired(mine, other)
		r.AgainstValue, r.Ratio, r.Spread = Median(other), Median(ratios), Spread(ratios)
	}
	r.OK = p.Goal.Reached(r.Value, r.Ratio)
	if !p.Goal.value && p.Goal != (Goal{}) && r.Ratio == 0 { // nothing was measured beside it
		r.OK = false
	}
	return r
}

// slower is the smaller of two rates, round by round.
func slower(a, b []float64) []float64 {
	least := make([]float64, min(len(a), len(b)))
	for i := range least {
		least[i] = min(a[i], b[i])
	}
	return least
}

// together is the rate, round by round, of who does what a and b do, one after the other.
func together(a, b []float64) []float64 {
	rates := make([]float64, min(len(a), len(b)))
	for i := range rates {
		if a[i] != 0 && b[i] != 0 {
			rates[i] = 1 / (1/a[i] + 1/b[i])
		}
	}
	return rates
}

// Figures of a Sample that rows have beside their metric.
const (
	clientMicros Metric = -1 - iota
	brokerMicros
	busyMicros
)

func pick(samples []Sample, m Metric) []float64 {
	v := make([]float64, len(samples))
	for i, s := range samples {
		switch m {
		case clientMicros:
			v[i] = s.ClientUS
		case brokerMicros:
			v[i] = s.BrokerUS
		case busyMicros:
			v[i] = s.BusyUS
		default:
			v[i] = s.of(m)
		}
	}
	return v
}
