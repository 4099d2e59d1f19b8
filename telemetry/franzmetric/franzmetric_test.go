package franzmetric

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/onceward/onceward/kafkaadapter/franz"
	"github.com/onceward/onceward/telemetry/internal/metrictest"
)

func observed(t *testing.T) (*Metrics, func() map[string]float64) {
	t.Helper()
	provider, collect := metrictest.New(t)
	m, err := New(provider, metrictest.Name)
	if err != nil {
		t.Fatal(err)
	}
	return m, collect
}

const prefix = "onceward.kafka."

func TestHooks(t *testing.T) {
	m, collect := observed(t)
	got := collect()
	for _, rare := range []string{"parked", "unrecorded", "missing_id", "commit.failures", "ack.refused", "abandoned"} {
		if value, is := got[prefix+rare]; !is || value != 0 {
			t.Errorf("%s does not begin at 0", rare)
		}
	}
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
	o.AckRefused("orders", 7, failed)
	metrictest.Want(t, collect(), prefix, map[string]float64{
		prefix + "missing_id": 1, prefix + "handled{kafka.failed=false}": 2, prefix + "handled{kafka.failed=true}": 1, prefix + "waiting": 4,
		prefix + "unrecorded": 1, prefix + "parked": 5, prefix + "commit.failures": 1, prefix + "abandoned": 3, prefix + "ack.refused": 1,
	})
}

func TestProgress(t *testing.T) {
	m, collect := observed(t)
	var now []franz.Progress
	if err := m.observe(func() []franz.Progress { return now }); err != nil {
		t.Fatal(err)
	}
	metrictest.Want(t, collect(), prefix, map[string]float64{
		prefix + "partitions": 0, prefix + "age": 0, prefix + "lag": 0, prefix + "in_flight": 0, prefix + "paused{kafka.pause=backlog}": 0,
	})
	now = []franz.Progress{
		{Topic: "orders", Partition: 0, Lag: 10, InFlight: 3, Age: time.Minute, Backlogged: true, StoreDown: true},
		{Topic: "orders", Partition: 1, Lag: -1, InFlight: 4, Age: time.Second, StoreDown: true, NotOwned: true},
		{Topic: "orders", Partition: 2, Lag: 5, NotOwned: true},
	}
	metrictest.Want(t, collect(), prefix, map[string]float64{
		prefix + "partitions": 3, prefix + "age": 60, prefix + "lag": 15, prefix + "in_flight": 7,
		prefix + "paused{kafka.pause=backlog}": 1, prefix + "paused{kafka.pause=store}": 2, prefix + "paused{kafka.pause=not_owned}": 2,
	})
	if err := m.ObserveConsumer(nil); err == nil {
		t.Error("nothing to observe is no error")
	}
	if err := m.observe(nil); err == nil {
		t.Error("a second one is no error")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, is := collect()[prefix+"age"]; is {
		t.Error("after Close it is observed")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, "x"); err == nil {
		t.Error("no provider is no error")
	}
	if _, err := New(noop.NewMeterProvider(), ""); err == nil {
		t.Error("no name is no error")
	}
}
