package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
)

// Config configures a [Metrics].
type Config struct {
	// Name is the name of what is measured, such as the namespace of a [dedup.Deduper]: 1 to 255
	// bytes of UTF-8. It is the attribute onceward.name of every series, so the number of names
	// must not grow with the number of messages. Two Metrics of one provider need two names. No
	// default.
	Name string
	// Window is the [dedup.Config].Window of the observed Deduper. A gauge shows it, so that a rule
	// can compare it with the age of duplicates. Default: 0, no such gauge.
	Window time.Duration
}

// Metrics counts the events of a Deduper, an outbox and other parts of Onceward under one name.
// Make it with [NewMetrics]. All methods are safe for concurrent use.
type Metrics struct {
	maker  *meter.Maker
	window time.Duration
	dedup  dedupMetrics
	filter filterMetrics
	retry  retryMetrics
}

// NewMetrics makes the instruments with the provider, under the scope
// github.com/onceward/onceward/contrib/telemetry. It starts no goroutine. A nil provider and a bad
// field of cfg are errors that name them; an error of the provider is returned as it is.
func NewMetrics(provider metric.MeterProvider, cfg Config) (*Metrics, error) {
	if cfg.Window < 0 {
		return nil, fmt.Errorf("telemetry: Window is negative: %v", cfg.Window)
	}
	maker, err := meter.New("telemetry", provider, cfg.Name)
	if err != nil {
		return nil, err
	}
	m := &Metrics{maker: maker, window: cfg.Window}
	m.dedup.make(maker)
	m.filter.make(maker)
	m.retry.make(maker)
	if err := m.filter.observe(maker); err != nil {
		return nil, err
	}
	if cfg.Window > 0 {
		if err := observeWindow(maker, cfg.Window); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close ends the observations at each collection, which are gauges, and counters that other
// packages keep. Hooks still count. A second call does nothing.
func (m *Metrics) Close() error { return m.maker.Close() }

func observeWindow(maker *meter.Maker, window time.Duration) error {
	gauge := maker.Gauge("onceward.dedup.window", "s", "How long a finished key is remembered")
	set := maker.Set()
	return maker.Observe("the window", func(_ context.Context, to metric.Observer) {
		to.ObserveFloat64(gauge, window.Seconds(), set)
	}, gauge)
}
