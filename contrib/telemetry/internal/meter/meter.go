// Package meter makes the instruments of this module: all have the same scope, and the attribute
// that names what is measured. It also registers what is observed at each collection.
package meter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Scope is the instrumentation scope of all instruments.
const Scope = "github.com/onceward/onceward/contrib/telemetry"

// maxName bounds the name, in bytes, because the name is in every series.
const maxName = 255

// name is the attribute that all instruments have.
const name = attribute.Key("onceward.name")

// Maker makes instruments. It keeps the first error, so that callers check Err once.
type Maker struct {
	meter metric.Meter
	name  attribute.KeyValue
	err   error

	mu    sync.Mutex
	stops map[string]metric.Registration
}

// New checks the provider and the name of what is measured. The error names the package pkg.
func New(pkg string, provider metric.MeterProvider, who string) (*Maker, error) {
	if provider == nil {
		return nil, fmt.Errorf("%s: the meter provider is nil", pkg)
	}
	named, err := Name(pkg, who)
	if err != nil {
		return nil, err
	}
	return &Maker{meter: provider.Meter(Scope), name: named,
		stops: map[string]metric.Registration{}}, nil
}

// Name returns the attribute that names what is measured.
func Name(pkg, who string) (attribute.KeyValue, error) {
	switch {
	case who == "":
		return attribute.KeyValue{}, fmt.Errorf("%s: Name is empty", pkg)
	case len(who) > maxName || !utf8.ValidString(who):
		return attribute.KeyValue{},
			fmt.Errorf("%s: Name has more than %d bytes, or is not UTF-8", pkg, maxName)
	}
	return name.String(who), nil
}

// Err returns the first error of an instrument.
func (m *Maker) Err() error { return m.err }

func keep[T any](m *Maker, instrument T, err error) T {
	if err != nil && m.err == nil {
		m.err = err
	}
	return instrument
}

// Counter makes a counter; unit is a unit of UCUM.
func (m *Maker) Counter(name, unit, what string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return keep(m, c, err)
}

// Histogram makes a histogram of seconds.
func (m *Maker) Histogram(name, what string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(bounds...))
	return keep(m, h, err)
}

// Gauge makes a gauge that is observed at each collection.
func (m *Maker) Gauge(name, unit, what string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit),
		metric.WithDescription(what))
	return keep(m, g, err)
}

// Total makes a counter that is observed at each collection, because another package counts.
func (m *Maker) Total(name, unit, what string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit),
		metric.WithDescription(what))
	return keep(m, c, err)
}

// Set returns the name and the attributes as an option for a measurement.
func (m *Maker) Set(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(attrs, m.name)...))
}

// Add returns what Set returns, in the form that a counter takes without an allocation.
func (m *Maker) Add(attrs ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{m.Set(attrs...)}
}

// Observe registers read for each collection, until Close. Two observations of one kind would give
// one series two values, so the second one is refused.
func (m *Maker) Observe(kind string, read func(context.Context, metric.Observer),
	instruments ...metric.Observable) error {
	if m.err != nil {
		return m.err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, twice := m.stops[kind]; twice || m.stops == nil {
		return fmt.Errorf("telemetry: %s is observed already under this name, or it is closed; another one needs a name of its own", kind)
	}
	stop, err := m.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		read(ctx, to)
		return nil
	}, instruments...)
	if err == nil {
		m.stops[kind] = stop
	}
	return err
}

// Close ends all observations. A second call does nothing.
func (m *Maker) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, stop := range m.stops {
		errs = append(errs, stop.Unregister())
	}
	m.stops = nil
	return errors.Join(errs...)
}

// Flag is 1 for true.
func Flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Seconds returns the seconds of a duration, and 0 for a negative one.
func Seconds(d time.Duration) float64 { return max(0, d).Seconds() }
