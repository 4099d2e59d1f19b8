// Package saramametric measures a kafkaadapter.Adapter with OpenTelemetry: what became of messages,
// and how far its partitions have come. It is apart from package telemetry so that a program
// without Kafka links no client of it. What claims found, and the age of duplicates, is measured
// there.
package saramametric

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/kafka"
	"github.com/onceward/onceward/kafkaadapter"
)

// Metrics counts what an adapter tells and observes how far it is, under one name. Make it with
// [New]. All methods are safe for concurrent use. Topics and partitions are in no attribute.
type Metrics struct{ kafka *kafka.Metrics }

// New makes the instruments at the provider. Name is what telemetry.Config.Name is, and the same
// for the same consumer. It starts no goroutine. A nil provider and a bad name are errors; an error
// of the provider is returned as it is.
func New(provider metric.MeterProvider, name string) (*Metrics, error) {
	m, err := kafka.New("saramametric", provider, name)
	if err != nil {
		return nil, err
	}
	return &Metrics{m}, nil
}

// Observer returns hooks for kafkaadapter.Config.Observer. Those that are nil can be set, and those
// that are not can be called in hooks of your own.
func (m *Metrics) Observer() kafkaadapter.Observer {
	return kafkaadapter.Observer{
		MissingID: func(*sarama.ConsumerMessage) { m.kafka.MissingID() },
		Handled: func(_ *kafkaadapter.Message, _ time.Duration, err error) {
			m.kafka.Handled(err)
		},
		Waiting:      func(*kafkaadapter.Message) { m.kafka.Waiting() },
		Unrecorded:   func(*kafkaadapter.Message, error) { m.kafka.Unrecorded() },
		Parked:       func(*kafkaadapter.Message, error) { m.kafka.Parked() },
		CommitFailed: func(string, int32, error) { m.kafka.CommitFailed() },
		Revoked:      func(_ string, _ int32, _, abandoned int) { m.kafka.Revoked(abandoned) },
	}
}

// ObserveAdapter has the progress of an adapter collected, until Close; it costs a few locks a
// partition. One for each Metrics: a nil one and a second one are errors.
func (m *Metrics) ObserveAdapter(adapter *kafkaadapter.Adapter) error {
	if adapter == nil {
		return errors.New("saramametric: the adapter is nil")
	}
	return m.observe(adapter.Progress)
}

func (m *Metrics) observe(progress func() []kafkaadapter.Progress) error {
	return m.kafka.Observe("an adapter", func() []kafka.Progress {
		native := progress()
		all := make([]kafka.Progress, len(native))
		for i, p := range native {
			all[i] = kafka.Progress{
				Lag: p.Lag, InFlight: p.InFlight, Age: p.Age, Backlogged: p.Backlogged,
				StoreDown: p.StoreDown, NotOwned: p.NotOwned,
			}
		}
		return all
	})
}

// Close ends the observation. What hooks tell is counted as before. A second call does nothing.
func (m *Metrics) Close() error { return m.kafka.Close() }
