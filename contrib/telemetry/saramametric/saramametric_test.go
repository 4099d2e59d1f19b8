package saramametric

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/kafka"
	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/kafkaadapter"
)

func TestMetrics(t *testing.T) {
	metrictest.Kafka(t, func(t *testing.T) (*metrictest.Client, func() map[string]float64) {
		provider, collect := metrictest.New(t)
		m, err := New(provider, metrictest.Name)
		if err != nil {
			t.Fatal(err)
		}
		return client(m), collect
	}, func(provider metric.MeterProvider, name string) error {
		_, err := New(provider, name)
		return err
	})
}

func client(m *Metrics) *metrictest.Client {
	o, failed := m.Observer(), errors.New("down")
	return &metrictest.Client{
		MissingID: func() {
			o.MissingID(nil)
		}, Waiting: func() { o.Waiting(nil) }, Unrecorded: func() { o.Unrecorded(nil, failed) },
		Parked: func() {
			o.Parked(nil, failed)
		}, CommitFailed: func() { o.CommitFailed("orders", 7, failed) },
		Handled: func(err error) { o.Handled(nil, time.Second, err) },
		Revoked: func(returned, abandoned int) { o.Revoked("orders", 7, returned, abandoned) },
		Observe: func(progress func() []kafka.Progress) error {
			return m.observe(func() []kafkaadapter.Progress {
				var all []kafkaadapter.Progress
				for i, p := range progress() {
					all = append(all, kafkaadapter.Progress{
						Topic: "orders", Partition: int32(i), Lag: p.Lag, InFlight: p.InFlight,
						Age:        p.Age,
						Backlogged: p.Backlogged, StoreDown: p.StoreDown, NotOwned: p.NotOwned,
					})
				}
				return all
			})
		},
		ObserveNothing: func() error { return m.ObserveAdapter(nil) }, Close: m.Close,
	}
}
