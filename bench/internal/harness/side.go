package harness

import (
	"context"
	"errors"
	"time"
)

// Timing is the work of one timing of one side.
type Timing struct {
	// Keys to work on, fresh for every timing.
	Keys []string
	// Latency has a slot per key. A side that measures single calls fills it.
	Latency []time.Duration
}

// Run does the work on all keys of a timing.
type Run = func(context.Context, *Timing) error

// Side is one way of doing a workload.
type Side struct {
	// Name of the side, as it stands in results and plots.
	Name string
	// Prepare brings the server to where the timing begins; it is not timed. Nil: nothing.
	Prepare Run
	Run     Run
	// MinKeys of one timing of this side, where the setup's are fewer.
	MinKeys int
	// External measures elsewhere, such as in another program, and replaces Run.
	External func(context.Context) (Sample, error)
}

// Metric is a figure of a Sample.
type Metric int

// Metrics. What is left over of a Sample stands in columns of every row.
const (
	Rate         Metric = iota // keys/s; more is better
	Nanos                      // wall time, ns per key
	Micros                     // wall time, us per key
	ServerMicros               // CPU of the server, us per key
	Allocs                     // heap allocations per key
	P50                        // latency of one call, us
	P99                        // latency of one call, us
	Messages                   // messages/s of a consumer; more is better
	Relayed                    // messages/s of a database; more is better
	CPUMicros                  // CPU of client and server together, us per key
	// CPU of this process, ns per key: of one goroutine, on a machine with other work
	CPUNanos
	ClientMicros // CPU of this process, us per key
)

// Unit is the metric's, as rows have it.
func (m Metric) Unit() string {
	return [...]string{
		"keys/s", "ns/key", "us/key", "server CPU us/key", "allocations/key", "us (p50)",
		"us (p99)", "messages/s", "messages/s", "CPU us/key", "CPU ns/key", "client CPU us/key",
	}[m]
}

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

// Group is one workload at one parameter.
type Group struct {
	Workload string  // the family
	X        float64 // the parameter
	Title    string  // for people, and for choosing
	// Detail says that a quick run does without it: a point between others.
	Detail bool
	// Unable says why it cannot run on these servers; empty: it can.
	Unable string
	// Open connects and prepares what the group needs. What it has deferred runs also after an
	// error.
	Open func(context.Context, *Setup) error
}

// Setup is an opened group: the sides that are timed in turn, and the rows that come of it.
type Setup struct {
	Sides []Side
	Pairs []Pair
	// Multiple that the number of keys of a timing must be of: batch size, callers.
	Multiple int
	// MinKeys of one timing, below which the workload is not what it says. It wins over
	// any MaxKeys.
	MinKeys int
	// MaxKeys of one timing; 0: the run's.
	MaxKeys int
	// Keys makes the keys of a timing. Nil: fresh ones.
	Keys func(n int) []string
	// ServerCPU reads that of the server that this group works on, where it is not the one of the
	// run.
	ServerCPU CPU
	// Rows that were known when it was opened; they come after those of the pairs.
	Rows []Row

	deferred []func() error
}

// Side adds a side that only runs.
func (s *Setup) Side(name string, run Run) { s.Sides = append(s.Sides, Side{Name: name, Run: run}) }

// Pair adds pairs.
func (s *Setup) Pair(pairs ...Pair) { s.Pairs = append(s.Pairs, pairs...) }

// Defer has f called when the group ends; what was deferred last comes first.
func (s *Setup) Defer(f func() error) { s.deferred = append(s.deferred, f) }

// Close calls what was deferred.
func (s *Setup) Close() error {
	var err error
	for i := len(s.deferred) - 1; i >= 0; i-- {
		err = errors.Join(err, s.deferred[i]())
	}
	s.deferred = nil
	return err
}
