package harness

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Timing is the work of one timing of one side.
type Timing struct {
	Keys    []string        // to work on, fresh for every timing
	Latency []time.Duration // a slot per key, for a side that measures single calls
}

// Run does the work on all keys of a timing. Like everything that a group does it fails with
// [must.Do].
type Run = func(context.Context, *Timing)

// Side is one way of doing a workload.
type Side struct {
	Name    string // as it stands in results and plots
	Prepare Run    // to where the timing begins; it is not timed. Nil: nothing
	Run     Run
	MinKeys int // of one timing of this side, where the setup's are fewer
	// External measures elsewhere, such as in another program, and replaces Run.
	External func(context.Context) Sample
}

// Metric is a figure of a Sample.
type Metric int

// Metrics. What is left over of a Sample stands in columns of every row.
const (
	Rate         Metric = iota // more is better
	Nanos                      // wall time
	Micros                     // wall time
	ServerMicros               // CPU of the server
	Allocs                     // heap allocations
	P50                        // latency of one call
	P99                        // latency of one call
	Messages                   // of a consumer; more is better
	Relayed                    // of a database; more is better
	CPUMicros                  // CPU of client and server together
	CPUNanos                   // CPU of this process: for one goroutine, on a busy machine
	ClientMicros               // CPU of this process
)

var metrics = [...]struct {
	unit string
	of   func(Sample) float64
}{
	Rate:         {"keys/s", rate},
	Nanos:        {"ns/key", func(s Sample) float64 { return over(1e9, s.Rate) }},
	Micros:       {"us/key", func(s Sample) float64 { return over(1e6, s.Rate) }},
	ServerMicros: {"server CPU us/key", func(s Sample) float64 { return s.ServerUS }},
	Allocs:       {"allocations/key", func(s Sample) float64 { return s.Allocs }},
	P50:          {"us (p50)", func(s Sample) float64 { return s.P50Micros }},
	P99:          {"us (p99)", func(s Sample) float64 { return s.P99Micros }},
	Messages:     {"messages/s", rate},
	Relayed:      {"messages/s", rate},
	CPUMicros:    {"CPU us/key", func(s Sample) float64 { return s.ClientUS + s.ServerUS }},
	CPUNanos:     {"CPU ns/key", func(s Sample) float64 { return s.ClientUS * 1e3 }},
	ClientMicros: {"client CPU us/key", func(s Sample) float64 { return s.ClientUS }},
}

func rate(s Sample) float64 { return s.Rate }

// over is a/b, and 0 where there is no b.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Unit is the metric's, as rows have it.
func (m Metric) Unit() string { return metrics[m].unit }

// Pair is one row to be: a metric of a side, against that of another.
type Pair struct {
	Name    string // of the row; empty: the group's title
	Side    string
	Against string // a side's name; empty: compared with nothing
	// Or is another side: in each round the slower of the two is what counts, and the row
	// names the one that was slower in the median.
	Or string
	// And is another side: in each round what counts is the rate of a program that does the
	// work of both, one after the other.
	And    string
	Text   string // how the row calls Against; default: its name
	Metric Metric
	Goal   Goal
}

// Called names the row.
func (p *Pair) Called(name string) *Pair {
	p.Name = name
	return p
}

// As says how the row calls what the side is compared with.
func (p *Pair) As(text string) *Pair {
	p.Text = text
	return p
}

// In sets the metric.
func (p *Pair) In(m Metric) *Pair {
	p.Metric = m
	return p
}

// Wants sets the goal, and fails if it is none.
func (p *Pair) Wants(g Goal) *Pair {
	_ = g.OfRatio()
	p.Goal = g
	return p
}

// Groups are the workloads of a suite.
type Groups []Group

// Add adds a workload at one parameter. It may be changed until the next one is added.
func (g *Groups) Add(workload string, x int, title string,
	open func(context.Context, *Setup)) *Group {
	*g = append(*g, Group{Workload: workload, X: float64(x), Title: title, Open: open})
	return &(*g)[len(*g)-1]
}

// Group is one workload at one parameter.
type Group struct {
	Workload string  // the family
	X        float64 // the parameter
	Title    string  // for people, and for choosing
	Detail   bool    // a quick run does without it: a point between others
	Unable   string  // why it cannot run on these servers; empty: it can
	// Open connects and prepares what the group needs. What it has deferred runs also after an
	// error.
	Open func(context.Context, *Setup)
}

// Setup is an opened group: the sides that are timed in turn, and the rows that come of it.
type Setup struct {
	Cleanup

	Sides    []Side
	Pairs    []Pair
	Rows     []Row  // known when it was opened; they come after those of the pairs
	Metric   Metric // of the pairs that Compare adds from now on
	Multiple int    // that the number of keys of a timing must be of: batch size, callers
	// MinKeys of one timing, below which the workload is not what it says. It wins over
	// any MaxKeys.
	MinKeys   int
	MaxKeys   int                  // of one timing; 0: the run's
	Keys      func(n int) []string // makes the keys of a timing. Nil: fresh ones
	ServerCPU CPU                  // of the group's server, where it is not that of the run
}

// Side adds a side that only runs.
func (s *Setup) Side(name string, run Run) { s.Prepared(name, nil, run) }

// Prepared adds a side that prepares each timing.
func (s *Setup) Prepared(name string, prepare, run Run) {
	s.Sides = append(s.Sides, Side{Name: name, Prepare: prepare, Run: run})
}

// External adds a side that measures elsewhere.
func (s *Setup) External(name string, sample func(context.Context) Sample) {
	s.Sides = append(s.Sides, Side{Name: name, External: sample})
}

// Compare adds a row to be. It may be changed until the next one is added. Against is a side, or
// empty.
func (s *Setup) Compare(side, against string) *Pair {
	s.Pairs = append(s.Pairs, Pair{Side: side, Against: against, Metric: s.Metric})
	return &s.Pairs[len(s.Pairs)-1]
}

// Figure adds a row of something that is not timed in turn, of the group's workload and parameter
// unless the caller changes it, which may be done until the next one is added.
func (s *Setup) Figure(name, side string, value float64, unit string) *Row {
	s.Rows = append(s.Rows,
		Row{Name: name, Side: side, Value: value, Unit: unit, Rounds: 1, OK: true})
	return &s.Rows[len(s.Rows)-1]
}

// Cleanup is what is called at the end of a group, or of a suite.
type Cleanup struct{ deferred []func() error }

// Defer has f called at the end; what was deferred last comes first.
func (c *Cleanup) Defer(f func() error) { c.deferred = append(c.deferred, f) }

// Close calls what was deferred.
func (c *Cleanup) Close() (err error) {
	for _, f := range slices.Backward(c.deferred) {
		err = errors.Join(err, f())
	}
	c.deferred = nil
	return err
}
