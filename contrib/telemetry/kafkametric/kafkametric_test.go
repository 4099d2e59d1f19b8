package kafkametric

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
)

func TestMetrics(t *testing.T) {
	metrictest.Kafka(t, func(t *testing.T) (*metrictest.Client, func() map[string]float64) {
		provider, collect := metrictest.New(t)
		m, err := New(provider, metrictest.Name)
		require.NoError(t, err)
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
		Delayed: func() { o.Delayed(nil, "orders.retry", failed) },
		Parked: func() {
			o.Parked(nil, failed)
		}, CommitFailed: func() { o.CommitFailed("orders", 7, failed) },
		Handled: func(err error) { o.Handled(nil, time.Second, err) },
		Revoked: func(returned, abandoned int) { o.Revoked("orders", 7, returned, abandoned) },
		Observe: m.Observe, ObserveNothing: func() error { return m.Observe(nil) }, Close: m.Close,
		AckRefused: func() { o.AckRefused("orders", 7, failed) },
	}
}
