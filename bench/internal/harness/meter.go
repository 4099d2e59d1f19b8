package harness

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Sample is what one timing of one side has shown.
type Sample struct {
	Rate     float64 // keys/s
	ClientUS float64 // CPU of this process, us per key
	ServerUS float64 // CPU of Redis's thread, us per key; 0: unknown
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

// Meter times a side.
type Meter struct {
	// ServerCPU returns the CPU time that Redis's thread has used. Nil: unknown.
	ServerCPU func(context.Context) (time.Duration, error)
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
	server, err := m.serverCPU(ctx)
	if err != nil {
		return Sample{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, began := processCPU(), time.Now()
	if err := s.Run(ctx, t); err != nil {
		return Sample{}, err
	}
	elapsed, client := time.Since(began), processCPU()-client
	runtime.ReadMemStats(&after)
	serverNow, err := m.serverCPU(ctx)
	if err != nil {
		return Sample{}, err
	}
	n := float64(len(keys))
	sample := Sample{
		Rate: n / elapsed.Seconds(), ClientUS: micros(client) / n, ServerUS: micros(serverNow-server) / n,
		Allocs: float64(after.Mallocs-before.Mallocs) / n,
	}
	sample.P50, sample.P99 = percentiles(t.Latency)
	return sample, nil
}

func (m Meter) serverCPU(ctx context.Context) (time.Duration, error) {
	if m.ServerCPU == nil {
		return 0, nil
	}
	return m.ServerCPU(ctx)
}

func percentiles(latency []time.Duration) (p50, p99 float64) {
	slices.Sort(latency)
	first, _ := slices.BinarySearch(latency, 1) // zeros were not measured
	latency = latency[first:]
	return micros(Percentile(latency, 0.5)), micros(Percentile(latency, 0.99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
