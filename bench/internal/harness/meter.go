package harness

import (
	"context"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// Sample is what one timing of one side has shown.
type Sample struct {
	Rate     float64 // keys/s
	ClientUS float64 // CPU of this process, us per key
	ServerUS float64 // CPU of the server (Redis: of its thread), us per key; 0: unknown
	BrokerUS float64 // CPU of the broker's process, us per key; 0: unknown
	BusyUS   float64 // CPU of everything on this machine, us per key; 0: unknown
	Allocs   float64 // per key
	P50, P99 float64 // us; 0: not measured
}

// of returns one figure of the sample.
func (s Sample) of(m Metric) float64 {
	switch m {
	case Nanos:
		return per(1e9, s.Rate)
	case Micros:
		return per(1e6, s.Rate)
	case ServerMicros:
		return s.ServerUS
	case CPUNanos:
		return s.ClientUS * 1e3
	case CPUMicros:
		return s.ClientUS + s.ServerUS
	case ClientMicros:
		return s.ClientUS
	case Allocs:
		return s.Allocs
	case P50:
		return s.P50
	case P99:
		return s.P99
	default:
		return s.Rate
	}
}

func per(unit, rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return unit / rate
}

// CPU reads the processor time that a server has used. Nil: unknown.
type CPU func(context.Context) (time.Duration, error)

func (c CPU) read(ctx context.Context) (time.Duration, error) {
	if c == nil {
		return 0, nil
	}
	return c(ctx)
}

// Meter times a side.
type Meter struct {
	ServerCPU CPU // of Redis's thread, or of all processes of a database
	BrokerCPU CPU // of the broker's process
}

// Time prepares a side and times it over the keys.
func (m Meter) Time(ctx context.Context, s Side, keys []string) (Sample, error) {
	if s.External != nil {
		return s.External(ctx)
	}
	t := &Timing{Keys: keys, Latency: make([]time.Duration, len(keys))}
	if s.Prepare != nil {
		if err := s.Prepare(ctx, t); err != nil {
			return Sample{}, err
		}
	}
	runtime.GC() // the garbage of one side is not the next one's burden
	before, err := m.Read(ctx)
	if err != nil {
		return Sample{}, err
	}
	// The label tells in a profile whose work it was: goroutines inherit it.
	pprof.Do(ctx, pprof.Labels("side", s.Name), func(ctx context.Context) { err = s.Run(ctx, t) })
	if err != nil {
		return Sample{}, err
	}
	after, err := m.Read(ctx)
	if err != nil {
		return Sample{}, err
	}
	sample := before.To(after, len(keys))
	sample.P50, sample.P99 = percentiles(t.Latency)
	return sample, nil
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
func (m Meter) Read(ctx context.Context) (Reading, error) {
	r := Reading{began: readClock(), busy: machineCPU()}
	var err error
	if r.server, err = m.ServerCPU.read(ctx); err != nil {
		return Reading{}, err
	}
	if r.broker, err = m.BrokerCPU.read(ctx); err != nil {
		return Reading{}, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.mallocs = memory.Mallocs
	r.ended = readClock()
	return r, nil
}

// To is what n keys took between two readings.
func (r Reading) To(after Reading, n int) Sample {
	each := 1 / float64(n)
	return Sample{
		Rate:     float64(n) / after.began.at.Sub(r.ended.at).Seconds(),
		ClientUS: micros(after.began.client-r.ended.client) * each,
		ServerUS: micros(after.server-r.server) * each,
		BrokerUS: micros(after.broker-r.broker) * each, BusyUS: micros(after.busy-r.busy) * each,
		Allocs: float64(after.mallocs-r.mallocs) * each,
	}
}

func percentiles(latency []time.Duration) (p50, p99 float64) {
	slices.Sort(latency)
	first, _ := slices.BinarySearch(latency, 1) // zeros were not measured
	latency = latency[first:]
	return micros(Percentile(latency, 0.5)), micros(Percentile(latency, 0.99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
