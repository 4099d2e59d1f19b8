package harness

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/must"
)

// Usage is what one key or message takes. A 0 is unknown.
type Usage struct {
	ClientUS float64 `json:"client_us,omitempty"` // CPU microseconds of this process
	// CPU microseconds of Redis's thread, or of the database
	ServerUS float64 `json:"server_us,omitempty"`
	BrokerUS float64 `json:"broker_us,omitempty"` // CPU microseconds of the broker's process
	// CPU microseconds of the whole machine, other programs included
	BusyUS    float64 `json:"busy_us,omitempty"`
	Allocs    float64 `json:"allocs,omitempty"` // heap allocations of this process
	P50Micros float64 `json:"p50_us,omitempty"` // latency of one call, microseconds
	P99Micros float64 `json:"p99_us,omitempty"` // latency of one call, microseconds
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

func (c CPU) read(ctx context.Context) time.Duration {
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
		before := m.Read(ctx)
		// A profile shows by this label whose work it was: goroutines inherit it.
		pprof.Do(ctx, pprof.Labels("side", s.Name), func(ctx context.Context) { s.Run(ctx, t) })
		sample = before.To(m.Read(ctx), len(keys))
		sample.P50Micros, sample.P99Micros = percentiles(t.Latency)
	})
	if err != nil {
		must.Do(fmt.Errorf("%s: %w", s.Name, err))
	}
	return sample
}

// Reading is where clocks and counters stood. Taking it costs a round trip and stops the
// world, and what lies between two readings is none of that: it goes from the end of the
// first to the beginning of the second.
type Reading struct {
	began, ended   clock
	server, broker time.Duration
	busy           time.Duration // CPU of everything on this machine
	mallocs        uint64
}

type clock struct {
	at     time.Time
	client time.Duration // CPU of this process
}

func readClock() clock { return clock{at: time.Now(), client: ProcessCPU()} }

// Read reads clocks and counters, in one round trip to the server.
func (m Meter) Read(ctx context.Context) Reading {
	r := Reading{began: readClock(), busy: machineCPU(), server: m.ServerCPU.read(ctx),
		broker: m.BrokerCPU.read(ctx)}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.mallocs, r.ended = memory.Mallocs, readClock()
	return r
}

// To is what n keys took between two readings.
func (r Reading) To(after Reading, n int) Sample {
	each := func(d time.Duration) float64 { return micros(d) / float64(n) }
	return Sample{
		Rate: float64(n) / after.began.at.Sub(r.ended.at).Seconds(),
		Usage: Usage{
			ClientUS: each(after.began.client - r.ended.client),
			ServerUS: each(after.server - r.server), BrokerUS: each(after.broker - r.broker),
			BusyUS: each(after.busy - r.busy),
			Allocs: float64(after.mallocs-r.mallocs) / float64(n),
		},
	}
}

func percentiles(latency []time.Duration) (p50, p99 float64) {
	slices.Sort(latency)
	first, _ := slices.BinarySearch(latency, 1) // zeros were not measured
	latency = latency[first:]
	return micros(Percentile(latency, 0.5)), micros(Percentile(latency, 0.99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
