package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"

	"github.com/onceward/onceward/bench/internal/must"
)

// Results is one file of results.
type Results struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"` // of the run, UTC
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []Row             `json:"rows"`
	LeftOut  []string          `json:"left_out,omitempty"` // what it did not measure, and why
}

// Row is one comparison: the result of a side, next to that of another side in the same rounds.
type Row struct {
	Name         string     `json:"name"`
	Value        float64    `json:"value"` // median over the rounds
	Unit         string     `json:"unit"`
	Against      string     `json:"against"` // empty if nothing is compared
	AgainstValue float64    `json:"against_value"`
	Ratio        float64    `json:"ratio"`  // median of the rounds' ratios
	Spread       [2]float64 `json:"spread"` // smallest and largest of these
	Rounds       int        `json:"rounds"`
	Goal         Goal       `json:"goal"` // empty: there is none
	OK           bool       `json:"ok"`

	Workload string  `json:"workload,omitempty"` // the family of rows that a plot draws
	Side     string  `json:"side,omitempty"`     // that did the work
	X        float64 `json:"x"`                  // the parameter that varies in the family
	Usage
	Binds string `json:"binds,omitempty"` // the processor that limits the rate; how busy each was
}

// Next compares the row with another value.
func (r *Row) Next(against string, other float64) *Row {
	r.Against, r.AgainstValue, r.Ratio = against, other, r.Value/other
	r.Spread = [2]float64{r.Ratio, r.Ratio}
	return r
}

// Wants sets the goal, and whether it is reached.
func (r *Row) Wants(g Goal) *Row {
	r.Goal, r.OK = g, g.Reached(r.Value, r.Ratio)
	return r
}

// String formats the row on one line.
func (r Row) String() string {
	text := fmt.Sprintf("%-46s %-30s %11.4g %-8s", r.Name, r.Side, r.Value, r.Unit)
	if r.Against != "" {
		text += fmt.Sprintf(" %6.2fx [%.2f, %.2f] of %s (%.4g)", r.Ratio, r.Spread[0], r.Spread[1],
			r.Against, r.AgainstValue)
	}
	if r.Goal != "" {
		text += fmt.Sprintf(" | goal %s: %s", r.Goal,
			map[bool]string{true: "reached", false: "missed"}[r.OK])
	}
	return text
}

// Write replaces the file at path atomically, so that an interrupted run leaves the old one.
func (r Results) Write(path string) (err error) {
	defer must.Catch(&err)
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // goals contain ">"
	enc.SetIndent("", "  ")
	must.Do(enc.Encode(r))
	must.Do(os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(os.WriteFile(path+".new", data.Bytes(), 0o644))
	return os.Rename(path+".new", path)
}

// ReadJSON reads a file of results. An unknown field is an error.
func ReadJSON(path string, into any) (err error) {
	defer must.Catch(&err)
	dec := json.NewDecoder(bytes.NewReader(must.Get(os.ReadFile(path))))
	dec.DisallowUnknownFields()
	err = dec.Decode(into)
	must.True(err == nil, "harness: %s: %w", path, err)
	return nil
}

// Read returns the results of the file at path.
func Read(path string) (r Results, err error) {
	err = ReadJSON(path, &r)
	return r, err
}

// Goal is what a row has to reach, in the form for people: a ratio, such as ">= 0.85x (stretch
// 0.92x)", or a value with its unit, such as "<= 10 B". A stretch is not required.
type Goal string

var goalForm = regexp.MustCompile(`^([<>]=) ([0-9.]+)(x| \S+)( \(stretch [0-9.]+(x| \S+)\))?$`)

// parts are the sign, the limit and the unit.
func (g Goal) parts() [3]string {
	all := goalForm.FindStringSubmatch(string(g))
	must.True(all != nil, "harness: %q is not a goal", string(g))
	return [3]string(all[1:])
}

// OfRatio reports whether the goal is about the ratio, not about the value itself.
func (g Goal) OfRatio() bool { return g != "" && g.parts()[2] == "x" }

// When returns the goal if holds is true, otherwise an empty one.
func When(holds bool, g Goal) Goal {
	if holds {
		return g
	}
	return ""
}

// Reached reports whether a row with this value and ratio reaches the goal.
func (g Goal) Reached(value, ratio float64) bool {
	if g == "" {
		return true
	}
	if g.OfRatio() {
		value = ratio
	}
	parts := g.parts()
	limit := must.Get(strconv.ParseFloat(parts[1], 64))
	if parts[0] == "<=" {
		return value <= limit
	}
	return value >= limit
}

// rows returns a row for each pair of the group, and then one for each side without a pair.
func (g Group) rows(s *Setup, samples map[string][]Sample) (rows []Row) {
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
	metric := cmp.Or(p.Metric, Rate)
	of := func(side string) (all []float64) {
		for _, s := range samples[side] {
			all = append(all, metric.of(s))
		}
		return all
	}
	mine := of(p.Side)
	r := Row{Name: cmp.Or(p.Name, g.Title), Value: Median(mine), Unit: metric.Unit,
		Rounds: len(mine), Goal: p.Goal, Workload: g.Workload, Side: p.Side, X: g.X,
		Usage: UsageOf(samples[p.Side])}
	if metric == Messages {
		r.Binds = binds(r, runtime.NumCPU())
	} else { // nobody needs its columns
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
			other = both(other, or, math.Min)
		}
		if p.And != "" {
			other = both(other, of(p.And), func(a, b float64) float64 { return over(a*b, a+b) })
		}
		ratios := Paired(mine, other)
		r.AgainstValue, r.Ratio, r.Spread = Median(other), Median(ratios), Spread(ratios)
	}
	// A ratio of 0 means that one side has no measurement.
	r.OK = p.Goal.Reached(r.Value, r.Ratio) && (!p.Goal.OfRatio() || r.Ratio != 0)
	return r
}

func both(a, b []float64, join func(a, b float64) float64) []float64 {
	joined := make([]float64, min(len(a), len(b)))
	for i := range joined {
		joined[i] = join(a[i], b[i])
	}
	return joined
}

// binds says what limits a row's rate on a machine with this many cores. Redis executes commands in
// one thread, which can be the limit while other cores are free.
func binds(r Row, cores int) string {
	const full = 0.85 // of a processor counts as full: the measurement and the kernel take the rest
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
