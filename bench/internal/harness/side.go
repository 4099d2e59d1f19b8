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

// Timing is what one side works on while it is timed once.
type Timing struct {
	Keys    []string        // new ones for every timing
	Latency []time.Duration // one slot per key, for a side that measures single calls
}

// Run does the work on all keys of a timing, and fails with [must.Do].
type Run = func(context.Context, *Timing)

// Side is one way of doing a workload.
type Side struct {
	Name    string // as results and plots show it
	Prepare Run    // prepares a timing, and is not timed; nil: nothing
	Run     Run
	MinKeys int // of one timing of this side, if the setup has fewer
	// External measures elsewhere, such as in another program. It replaces Run.
	External func(context.Context) Sample
}

// Metric is one figure of a Sample.
type Metric struct {
	Unit string // as rows show it
	of   func(Sample) float64
}

// Metrics. The other fields of a Sample are columns of every row.
var (
	Rate         = &Metric{"keys/s", rate}
	Messages     = &Metric{"messages/s", rate} // for a consumer
	Relayed      = &Metric{"messages/s", rate} // for a database
	Nanos        = &Metric{"ns/key", func(s Sample) float64 { return over(1e9, s.Rate) }}
	Micros       = &Metric{"us/key", func(s Sample) float64 { return over(1e6, s.Rate) }}
	ServerMicros = &Metric{"server CPU us/key", func(s Sample) float64 { return s.ServerUS }}
	ClientMicros = &Metric{"client CPU us/key", func(s Sample) float64 { return s.ClientUS }}
	CPUMicros    = &Metric{"CPU us/key", func(s Sample) float64 { return s.ClientUS + s.ServerUS }}
	// CPUNanos is the CPU time of this process. Use it for one goroutine on a busy machine.
	CPUNanos = &Metric{"CPU ns/key", func(s Sample) float64 { return s.ClientUS * 1e3 }}
	Allocs   = &Metric{"allocations/key", func(s Sample) float64 { return s.Allocs }}
	P50      = &Metric{"us (p50)", func(s Sample) float64 { return s.P50Micros }}
	P99      = &Metric{"us (p99)", func(s Sample) float64 { return s.P99Micros }}
)

func rate(s Sample) float64 { return s.Rate }

// over is a/b, and 0 if b is 0.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Pair describes a row of the results: a metric of a side, compared with that of another side.
type Pair struct {
	Name    string // of the row; empty: the group's title
	Side    string
	Against string // name of a side; empty: no comparison
	// Or is another side. In each round the slower of the two counts, and the row names it.
	Or string
	// And is another side. Side is then compared with the rate of a program that does the work of
	// both Against and And.
	And    string
	Text   string  // name of Against in the row; default: its name
	Metric *Metric // nil: Rate
	Goal   Goal
}

// Called sets the name of the row.
func (p *Pair) Called(name string) *Pair {
	p.Name = name
	return p
}

// As sets how the row names the side that it is compared with.
func (p *Pair) As(text string) *Pair {
	p.Text = text
	return p
}

// In sets the metric.
func (p *Pair) In(m *Metric) *Pair {
	p.Metric = m
	return p
}

// Wants sets the goal, and fails if the goal is not valid.
func (p *Pair) Wants(g Goal) *Pair {
	_ = g.OfRatio()
	p.Goal = g
	return p
}

// Groups are the workloads of a suite.
type Groups []Group

// Add adds a workload at one parameter. The caller may change the group until the next Add.
func (g *Groups) Add(workload string, x int, title string,
	open func(context.Context, *Setup)) *Group {
	*g = append(*g, Group{Workload: workload, X: float64(x), Title: title, Open: open})
	return &(*g)[len(*g)-1]
}

// Group is one workload at one parameter.
type Group struct {
	Workload string  // the family
	X        float64 // the parameter
	Title    string  // for people, and for choosing groups
	Detail   bool    // left out of a quick run: a point between others
	Unable   string  // why it cannot run on these servers; empty if it can
	// Open connects to the servers of the group and prepares them. Its deferred functions run even
	// if it fails.
	Open func(context.Context, *Setup)
}

// Setup is an opened group: the sides that are timed in turn, and the rows of the results.
type Setup struct {
	Cleanup

	Sides    []Side
	Pairs    []Pair
	Rows     []Row                // known after the opening; they follow the rows of the pairs
	Metric   *Metric              // for the pairs that Compare adds later
	Multiple int                  // the number of keys is a multiple of it: batch size, callers
	MinKeys  int                  // of one timing, whatever MaxKeys says
	MaxKeys  int                  // of one timing; 0: that of the run
	Keys     func(n int) []string // makes the keys of a timing; default: fresh ones
	// ServerCPU is the CPU of the group's server, if the run has another one.
	ServerCPU CPU
}

// Side adds a side without preparation.
func (s *Setup) Side(name string, run Run) { s.Prepared(name, nil, run) }

// Prepared adds a side that prepares each timing.
func (s *Setup) Prepared(name string, prepare, run Run) {
	s.Sides = append(s.Sides, Side{Name: name, Prepare: prepare, Run: run})
}

// External adds a side that measures elsewhere.
func (s *Setup) External(name string, sample func(context.Context) Sample) {
	s.Sides = append(s.Sides, Side{Name: name, External: sample})
}

// Compare adds a row of the results. The caller may change the pair until the next Compare.
func (s *Setup) Compare(side, against string) *Pair {
	s.Pairs = append(s.Pairs, Pair{Side: side, Against: against, Metric: cmp.Or(s.Metric, Rate)})
	return &s.Pairs[len(s.Pairs)-1]
}

// Figure adds a row that is not timed in turn. It has the group's workload and parameter, unless
// the caller sets others. The caller may change the row until the next Figure.
func (s *Setup) Figure(name, side string, value float64, unit string) *Row {
	s.Rows = append(s.Rows,
		Row{Name: name, Side: side, Value: value, Unit: unit, Rounds: 1, OK: true})
	return &s.Rows[len(s.Rows)-1]
}

// Cleanup holds the functions that are called at the end of a group or of a suite.
type Cleanup struct{ deferred []func() error }

// Defer calls f at the end. Functions run in the reverse order of their Defer calls.
func (c *Cleanup) Defer(f func() error) { c.deferred = append(c.deferred, f) }

// DeferCtx is Defer with a context for f: the context of the run may have ended.
func (c *Cleanup) DeferCtx(f func(context.Context) error) {
	c.Defer(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return f(ctx)
	})
}

// Close calls the deferred functions.
func (c *Cleanup) Close() (err error) {
	for _, f := range slices.Backward(c.deferred) {
		err = errors.Join(err, f())
	}
	c.deferred = nil
	return err
}

// Usage is what one key or message costs. A 0 means unknown.
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

// Sample is the result of one timing of one side.
type Sample struct {
	Usage

	Rate float64 // keys/s
}

// UsageOf returns the median of each figure.
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

// CPU reads the processor time that a server has used. Nil means unknown.
type CPU func(context.Context) time.Duration

// Read reads the time; 0 if it is unknown.
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
		runtime.GC() // the garbage of one side must not slow down the next
		sample = m.Measure(ctx, func() int {
			// The label shows in a profile which side ran: goroutines inherit it.
			pprof.Do(ctx, pprof.Labels("side", s.Name), func(ctx context.Context) { s.Run(ctx, t) })
			return len(keys)
		})
		sample.P50Micros, sample.P99Micros = Percentiles(t.Latency)
	})
	must.True(err == nil, "%s: %w", s.Name, err)
	return sample
}

// Measure returns the cost of do per key; do returns the number of keys. Reading the counters costs
// a round trip and allocates, so Measure does it outside the measured time and allocations.
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

// Percentiles returns the 50th and the 99th percentile in microseconds. It sorts its argument.
func Percentiles(latency []time.Duration) (p50, p99 float64) {
	slices.Sort(latency)
	first, _ := slices.BinarySearch(latency, 1) // zeros are slots that were not measured
	latency = latency[first:]
	return micros(Percentile(latency, 0.5)), micros(Percentile(latency, 0.99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Median returns the middle of v, or the mean of the middle two, or 0 if v is empty.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Paired returns a[i]/b[i] for every round that both have, except where b is 0.
func Paired(a, b []float64) (ratios []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// Spread returns the smallest and the largest of v, or zeros if v is empty.
func Spread(v []float64) [2]float64 {
	if len(v) == 0 {
		return [2]float64{}
	}
	return [2]float64{slices.Min(v), slices.Max(v)}
}

// Percentile returns the smallest duration that at least share (0 to 1) of sorted do not exceed
// (nearest rank). It returns 0 if sorted is empty.
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

// Fresh returns one key like those of FreshKeys, for a name that no other run uses.
func Fresh() string { return uuid.NewString() }

// Recent returns n keys. A share of them, in percent, repeats a key that came at least gap before,
// so that this one is finished. The first gap keys are new.
func Recent(n, share, gap int) []string {
	const span = 10_000 // the largest distance of a duplicate from its original
	keys := FreshKeys(n)
	for i := gap; i < n; i++ {
		if rand.IntN(100) < share {
			keys[i] = keys[i-gap-rand.IntN(min(i-gap+1, span))]
		}
	}
	return keys
}

// Short formats a number as people write it: 10 k, 2 M.
func Short(n int) string { return strings.TrimSpace(humanize.SI(float64(n), "")) }
