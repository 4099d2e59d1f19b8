package saramametric

import (
	"errors"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/onceward/onceward/kafkaadapter"
)

func observed(t *testing.T) (*Metrics, func() map[string]float64) {
	t.Helper()
	reader := sdk.NewManualReader()
	m, err := New(sdk.NewMeterProvider(sdk.WithReader(reader)), "payments")
	if err != nil {
		t.Fatal(err)
	}
	return m, func() map[string]float64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						failed, _ := p.Attributes.Value(failedKey)
						values[m.Name+" "+failed.String()] = float64(p.Value)
					}
				case metricdata.Gauge[float64]:
					for _, p := range data.DataPoints {
						pause, _ := p.Attributes.Value(pauseKey)
						values[m.Name+" "+pause.String()] = p.Value
					}
				}
			}
		}
		return values
	}
}

func want(t *testing.T, got, wanted map[string]float64) {
	t.Helper()
	for name, value := range wanted {
		if v, is := got["onceward.kafka."+name]; !is || v != value {
			t.Errorf("%s is %v, there: %v; want %v", name, v, is, value)
		}
	}
}

func TestHooks(t *testing.T) {
	m, collect := observed(t)
	want(t, collect(), map[string]float64{"parked ": 0, "unrecorded ": 0, "missing_id ": 0, "commit.failures ": 0, "abandoned ": 0})
	o, failed := m.Observer(), errors.New("down")
	o.MissingID(nil)
	o.Handled(nil, time.Second, nil)
	o.Handled(nil, time.Second, nil)
	o.Handled(nil, time.Second, failed)
	for range 4 {
		o.Waiting(nil)
	}
	o.Unrecorded(nil, failed)
	for range 5 {
		o.Parked(nil, failed)
	}
	o.CommitFailed("orders", 7, failed)
	o.Revoked("orders", 7, 2, 3)
	want(t, collect(), map[string]float64{
		"missing_id ": 1, "handled false": 2, "handled true": 1, "waiting ": 4, "unrecorded ": 1, "parked ": 5, "commit.failures ": 1, "abandoned ": 3,
	})
}

func TestProgress(t *testing.T) {
	m, collect := observed(t)
	var now []kafkaadapter.Progress
	if err := m.observe(func() []kafkaadapter.Progress { return now }); err != nil {
		t.Fatal(err)
	}
	want(t, collect(), map[string]float64{"partitions ": 0, "age ": 0, "lag ": 0, "in_flight ": 0, "paused backlog": 0})
	now = []kafkaadapter.Progress{
		{Topic: "orders", Partition: 0, Lag: 10, InFlight: 3, Age: time.Minute, Backlogged: true, StoreDown: true},
		{Topic: "orders", Partition: 1, Lag: -1, InFlight: 4, Age: time.Second, StoreDown: true, NotOwned: true},
		{Topic: "orders", Partition: 2, Lag: 5, NotOwned: true},
	}
	want(t, collect(), map[string]float64{
		"partitions ": 3, "age ": 60, "lag ": 15, "in_flight ": 7, "paused backlog": 1, "paused store": 2, "paused not_owned": 2,
	})
	if err := m.ObserveAdapter(nil); err == nil {
		t.Error("a nil adapter is no error")
	}
	if err := m.observe(nil); err == nil {
		t.Error("a second adapter is no error")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, is := collect()["onceward.kafka.age "]; is {
		t.Error("after Close it is observed")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, "x"); err == nil {
		t.Error("no provider is no error")
	}
	if _, err := New(sdk.NewMeterProvider(), ""); err == nil {
		t.Error("no name is no error")
	}
}
