package harness

import (
	"context"
	"time"
)

// Timing is the work of one timing of one side.
type Timing struct {
	// Keys to work on, fresh for every timing.
	Keys []string
	// Latency has a slot per key. Who measures single calls fills it.
	Latency []time.Duration
}

// Side is one way of doing a workload.
type Side struct {
	// Name of the side, as it stands in results and plots.
	Name string
	// Prepare brings the server to where the timing begins; it is not timed. Nil: nothing.
	Prepare func(context.Context, *Timing) error
	// Run does the work on all keys of the timing.
	Run func(context.Context, *Timing) error
	// MinKeys of one timing of this side, where the setup's are fewer.
	MinKeys int
	// External measures elsewhere, such as in another program, and replaces Run.
	External func(context.Context) (Sample, error)
}

// Metric is a figure of a Sample.
type Metric int

// Metrics.
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
	CPUNanos                   // CPU of this process, ns per key: of one goroutine, on a machine with other work
)

// Unit is the metric's, as rows have it.
func (m Metric) Unit() string {
	return [...]string{"keys/s", "ns/key", "us/key", "server CPU us/key", "allocations/key", "us (p50)", "us (p99)", "messages/s", "messages/s", "CPU us/key", "CPU ns/key"}[m]
}

// Pair is one row to be: a metric of a side, against that of another.
type Pair struct {
	Name    string // of the row
	Side    string
	Against string // a side's name; empty: compared with nothing
	// Or is another side: in each round the slower of the two is what counts, and the row
	// names the one that was slower in the median.
	Or string
	// And is another side: in each round what counts is the rate of who does the work of both,
	// one after the other.
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
	// Memory says that it looks at the server's memory, so it needs a real one of our own.
	Memory bool
	// Own says that it leaves so much behind, for so long, that it needs a server of our own.
	Own bool
	// Detail says that a quick run does without it: a point between others.
	Detail bool
	// Open connects and prepares what the group needs.
	Open func(context.Context) (Setup, error)
	// Measure replaces Open where nothing is timed in turn.
	Measure func(context.Context) ([]Row, error)
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
	// ServerCPU reads that of the server that this group works on, where it is not the one of the run.
	ServerCPU func(context.Context) (time.Duration, error)
	// Rows that were known when it was opened; they come after those of the pairs.
	Rows []Row
	// Close may be nil.
	Close func()
}
