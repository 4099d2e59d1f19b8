package harness

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/google/uuid"

	"github.com/onceward/onceward/bench/internal/must"
)

// Timing is the work of one timing of one side.
type Timing struct {
	Keys    []string        // to work on, fresh for every timing
	Latency []time.Duration // a slot per key, for a side that measures single calls
}

// Run does the work on all keys of a timing, and fails with [must.Do].
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
type Metric struct {
	Unit string // as rows have it
	of   func(Sample) float64
}

// Metrics. What is left over of a Sample stands in columns of every row.
var (
	Rate         = &Metric{"keys/s", rate}
	Messages     = &Metric{"messages/s", rate} // of a consumer
	Relayed      = &Metric{"messages/s", rate} // of a database
	Nanos        = &Metric{"ns/key", func(s Sample) float64 { return over(1e9, s.Rate) }}
	Micros       = &Metric{"us/key", func(s Sample) float64 { return over(1e6, s.Rate) }}
	ServerMicros = &Metric{"server CPU us/key", func(s Sample) float64 { return s.ServerUS }}
	ClientMicros = &Metric{"client CPU us/key", func(s Sample) float64 { return s.ClientUS }}
	CPUMicros    = &Metric{"CPU us/key", func(s Sample) float64 { return s.ClientUS + s.ServerUS }}
	// CPUNanos is CPU of this process: for one goroutine, on a busy machine.
	CPUNanos = &Metric{"CPU ns/key", func(s Sample) float64 { return s.ClientUS * 1e3 }}
	Allocs   = &Metric{"allocations/key", func(s Sample) float64 { return s.Allocs }}
	P50      = &Metric{"us (p50)", func(s Sample) float64 { return s.P50Micros }}
	P99      = &Metric{"us (p99)", func(s Sample) float64 { return s.P99Micros }}
)

func rate(s Sample) float64 { return s.Rate }

// over is a/b, and 0 where there is no b.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Pair is one row to be: a metric of a side, against that of another.
type Pair struct {
	Name    string // of the row; empty: the group's title
	Side    string
	Against string // a side's name; empty: compared with nothing
	// Or is another side: the slower of the two counts in each round, and is named.
	Or string
	// And is another side: what counts is the rate of a program that does the work of both.
	And    string
	Text   string  // how the row calls Against; default: its name
	Metric *Metric // nil: Rate
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
func (p *Pair) In(m *Metric) *Pair {
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
	// Open connects and prepares what the group needs. What it has deferred runs also if it fails.
	Open func(context.Context, *Setup)
}

// Setup is an opened group: the sides that are timed in turn, and the rows that come of it.
type Setup struct {
	Cleanup

	Sides    []Side
	Pairs    []Pair
	Rows     []Row                // known when it was opened; they come after those of the pairs
	Metric   *Metric              // of the pairs that Compare adds from now on
	Multiple int                  // of which keys there are in a timing: batch size, callers
	MinKeys  int                  // of one timing, whatever MaxKeys says
	MaxKeys  int                  // of one timing; 0: the run's
	Keys     func(n int) []string // makes the keys of a timing: fresh ones, unless changed
	// ServerCPU is of the group's server, where it is not that of the run.
	ServerCPU CPU
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

// Compare adds a row to be. It may be changed until the next one is added.
func (s *Setup) Compare(side, against string) *Pair {
	s.Pairs = append(s.Pairs, Pair{Side: side, Against: against, Metric: cmp.Or(s.Metric, Rate)})
	return &s.Pairs[len(s.Pairs)-1]
}

// Figure adds a row of something that is not timed in turn. It may be changed until the next one is
// added, and is of the group's workload and parameter unless it is given others.
func (s *Setup) Figure(name, side string, value float64, unit string) *Row {
	s.Rows = append(s.Rows,
		Row{Name: name, Side: side, Value: value, Unit: unit, Rounds: 1, OK: true})
	return &s.Rows[len(s.Rows)-1]
}

// Cleanup is what is called at the end of a group, or of a suite.
type Cleanup struct{ deferred []func() error }

// Defer has f called at the end; what was deferred last comes first.
func (c *Cleanup) Defer(f func() error) { c.deferred = append(c.deferred, f) }

// DeferCtx does so with a context of f's own: that of the run may have ended.
func (c *Cleanup) DeferCtx(f func(context.Context) error) {
	c.Defer(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return f(ctx)
	})
}

// Close calls what was deferred.
func (c *Cleanup) Close() (err error) {
	for _, f := range slices.Backward(c.deferred) {
		err = errors.Join(err, f())
	}
	c.deferred = nil
	return err
}

// Usage is what one key or message takes. A 0 is unknown.
type Usage struct {
	ClientUS  float64 `json:"client_us,omitempty"` // CPU microseconds of this process
	ServerUS  float64 `json:"server_us,omitempty"` // of Redis's thread, or of the database
	BrokerUS  float64 `json:"broker_us,omitempty"` // of the broker's process
	BusyUS    float64 `json:"busy_us,omitempty"`   // of the machine, other programs included
	Allocs    float64 `json:"allocs,omitempty"`    // heap allocations of this process
	P50Micros float64 `json:"p50_us,omitempty"`    // latency of one call
	P99Micros float64 `json:"p99_us,omitempty"`
}

func (u *Usage) figures() []*float64 {
	return []*float64{&u.ClientUS, &u.ServerUS, &u.BrokerUS, &u.BusyUS, &u.Allocs, &u.P50Micros,
		&u.P99Micros}
}

// Sample is what one timing of one side has shown.
type Sample struct {
	Usage

	Rate float64 // keys/s
}

// UsageOf is the median of each figure.
func UsageOf(samples []Sample) (u Usage) {
	for i, figure := range u.figures() {
		all := make([]float64, len(samples))
		for n, s := range samples {
			all[n] = *s.figures()[i]
		}
		*figure = Median(all)
	}
	return u
}

// CPU reads the processor time that a server has used. Nil: unknown.
type CPU func(context.Context) time.Duration

// Read reads the time; 0 where it is unknown.
func (c CPU) Read(ctx context.Context) time.Duration {
	if c == nil {
		return 0
	}
	return c(ctx)
}

// Meter times a side.
type Meter struct {
	ServerCPU CPU // of Redis's thread, or of all processes of a database
	BrokerCPU CPU // of the broker's process
}

// Time prepares a side and times it over the keys. It fails with an error that names the side.
func (m Meter) Time(ctx context.Context, s Side, keys []string) (sample Sample) {
	err := must.Try(func() {
		if s.External != nil {
			sample = s.External(ctx)
			return
		}
		t := &Timing{Keys: keys, Latency: make([]time.Duration, len(keys))}
		if s.Prepare != nil {
			s.Prepare(ctx, t)
		}
		runtime.GC() // the garbage of one side is not the next one's burden
		sample = m.Measure(ctx, func() int {
			// A profile shows by this label whose work it was: goroutines inherit it.
			pprof.Do(ctx, pprof.Labels("side", s.Name), func(ctx context.Context) { s.Run(ctx, t) })
			return len(keys)
		})
		sample.P50Micros, sample.P99Micros = Percentiles(t.Latency)
	})
	must.True(err == nil, "%s: %w", s.Name, err)
	return sample
}

// Measure is what do takes for each of the keys that it returns the number of. Reading the counters
// costs a round trip and allocates, and so it lies outside of what clocks and allocations show.
func (m Meter) Measure(ctx context.Context, do func() int) Sample {
	counters := func() (busy, server, broker time.Duration) {
		return machineCPU(), m.ServerCPU.Read(ctx), m.BrokerCPU.Read(ctx)
	}
	busy, server, broker := counters()
	allocs := mallocs()
	began, client := time.Now(), ProcessCPU()
	n := float64(do())
	took, client := time.Since(began), ProcessCPU()-client
	allocs = mallocs() - allocs
	busyThen, serverThen, brokerThen := counters()
	return Sample{Rate: n / took.Seconds(), Usage: Usage{ClientUS: micros(client) / n,
		ServerUS: micros(serverThen-server) / n, BrokerUS: micros(brokerThen-broker) / n,
		BusyUS: micros(busyThen-busy) / n, Allocs: float64(allocs) / n}}
}

func mallocs() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory) // stops the world
	return memory.Mallocs
}

// Percentiles are the 50th and the 99th in microseconds. It sorts what it is given.
func Percentiles(latency []time.Duration) (p50, p99 float64) {
	slices.Sort(latency)
	first, _ := slices.BinarySearch(latency, 1) // zeros were not measured
	latency = latency[first:]
	return micros(Percentile(latency, 0.5)), micros(Percentile(latency, 0.99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Median returns the middle of v, or the mean of the middle two, and 0 of nothing.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Paired returns a[i]/b[i] of every round that both have, but for those in which b is 0.
func Paired(a, b []float64) (ratios []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// Spread returns the smallest and the largest of v, zeros of nothing.
func Spread(v []float64) [2]float64 {
	if len(v) == 0 {
		return [2]float64{}
	}
	return [2]float64{slices.Min(v), slices.Max(v)}
}

// Percentile returns the smallest duration that at least share (0 to 1) of sorted do not
// exceed: the nearest-rank definition. Of nothing it returns 0.
func Percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// FreshKeys returns n keys that were never used before: random UUIDs.
func FreshKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = uuid.NewString()
	}
	return keys
}

// Fresh returns one such key, for a name that nobody else uses.
func Fresh() string { return uuid.NewString() }

// recentSpan is how far back a duplicate lies at most.
const recentSpan = 10_000

// Recent returns n keys of which share per cent repeat one that came at least gap before, so
// that it is finished. The first gap keys are new.
func Recent(n, share, gap int) []string {
	keys := FreshKeys(n)
	for i := gap; i < n; i++ {
		if rand.IntN(100) < share {
			keys[i] = keys[i-gap-rand.IntN(min(i-gap+1, recentSpan))]
		}
	}
	return keys
}

// Short is a number as people write it: 10 k, 2 M.
func Short(n int) string { return strings.TrimSpace(humanize.SI(float64(n), "")) }
