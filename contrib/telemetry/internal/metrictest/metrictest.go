// Package metrictest reads what this module's tests have measured.
package metrictest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Name is the name under which the tests measure.
const Name = "payments"

// New returns a provider, and a function that collects from it; see [Collect].
func New(t testing.TB) (*sdk.MeterProvider, func() map[string]float64) {
	t.Helper()
	reader := sdk.NewManualReader()
	return sdk.NewMeterProvider(sdk.WithReader(reader)), func() map[string]float64 {
		t.Helper()
		return Collect(t, reader)
	}
}

// Collect returns the value of each series, or the count for a histogram. A series is written as
// name{attribute=value,...}, without the name of what is measured, and without "onceward." before
// the attributes.
func Collect(t testing.TB, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				add(t, series, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				add(t, series, m.Name, data.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					series[label(t, m.Name, p.Attributes)] = float64(p.Count)
				}
			default:
				t.Fatalf("%s has data of type %T", m.Name, m.Data)
			}
		}
	}
	return series
}

func add[N int64 | float64](t testing.TB, series map[string]float64, name string,
	points []metricdata.DataPoint[N]) {
	t.Helper()
	for _, p := range points {
		series[label(t, name, p.Attributes)] = float64(p.Value)
	}
}

func label(t testing.TB, name string, set attribute.Set) string {
	t.Helper()
	var parts []string
	named := false
	for _, a := range set.ToSlice() {
		if a.Key == "onceward.name" {
			named = a.Value.AsString() == Name
			continue
		}
		parts = append(parts, fmt.Sprintf("%s=%s", strings.TrimPrefix(string(a.Key), "onceward."),
			a.Value.String()))
	}
	if !named {
		t.Errorf("%s is not named %s: %v", name, Name, set.ToSlice())
	}
	if len(parts) == 0 {
		return name
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// Want checks the series that begin with prefix. wanted may leave out series that are 0.
func Want(t testing.TB, got map[string]float64, prefix string, wanted map[string]float64) {
	t.Helper()
	for name, value := range got {
		if w := wanted[name]; strings.HasPrefix(name, prefix) && w != value {
			t.Errorf("%s is %v, want %v", name, value, w)
		}
	}
	for name, value := range wanted {
		if _, is := got[name]; !is {
			t.Errorf("%s is missing, want %v", name, value)
		}
	}
}
