package harness

import (
	"context"
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
