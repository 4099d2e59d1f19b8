// Package saramametric measures a kafkaadapter.Adapter with OpenTelemetry: what became of messages,
// and how far its partitions have come. It is apart from package telemetry so that a program
// without Kafka links no sarama. What claims found, and the age of duplicates, is measured there.
package saramametric

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/telemetry/internal/meter"
)

const (
	failedKey = attribute.Key("onceward.kafka.failed")
	pauseKey  = attribute.Key("onceward.kafka.pause")
)

// Metrics counts what an adapter tells and observes how far it is, under one name. Make it with
// [New]. All methods are safe for concurrent use. Topics and partitions are in no attribute.
type Metrics struct {
	maker *meter.Maker

	handled, waiting, parked, unrecorded, missingID, commitsFailed, abandoned metric.Int64Counter

	ok, failed, named []metric.AddOption
}

// New makes the instruments at the provider. Name is what telemetry.Config.Name is, and the same for
// the same consumer. It starts no goroutine. A nil provider and a bad name are errors; an error of
// the provider is returned as it is.
func New(provider metric.MeterProvider, name string) (*Metrics, error) {
	maker, err := meter.New("saramametric", provider, name)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		maker:         maker,
		handled:       maker.Counter("onceward.kafka.handled", "{message}", "Runs of the handler for a message"),
		waiting:       maker.Counter("onceward.kafka.waiting", "{observation}", "How often a message was found in flight elsewhere"),
		parked:        maker.Counter("onceward.kafka.parked", "{message}", "Messages that Config.Park has kept"),
		unrecorded:    maker.Counter("onceward.kafka.unrecorded", "{message}", "Messages that were handled, and whose record could not be confirmed: the effect may happen again"),
		missingID:     maker.Counter("onceward.kafka.missing_id", "{message}", "Messages in which Config.ID found no id"),
		commitsFailed: maker.Counter("onceward.kafka.commit.failures", "{commit}", "Attempts to commit that failed, and are repeated"),
		abandoned:     maker.Counter("onceward.kafka.abandoned", "{handler}", "Handlers that still ran when their partition was given up"),
		ok:            maker.Add(failedKey.Bool(false)), failed: maker.Add(failedKey.Bool(true)), named: maker.Add(),
	}
	ctx := context.Background()
	for _, rare := range []metric.Int64Counter{m.parked, m.unrecorded, m.missingID, m.commitsFailed, m.abandoned} {
		if maker.Err() == nil {
			rare.Add(ctx, 0, m.named...) // a series that appears with its first event has not risen
		}
	}
	return m, maker.Err()
}

// Observer returns hooks for kafkaadapter.Config.Observer. Those that are nil can be set, and those
// that are not can be called in hooks of your own.
func (m *Metrics) Observer() kafkaadapter.Observer {
	ctx := context.Background()
	return kafkaadapter.Observer{
		MissingID: func(*sarama.ConsumerMessage) { m.missingID.Add(ctx, 1, m.named...) },
		Handled: func(_ *kafkaadapter.Message, _ time.Duration, err error) {
			if err != nil {
				m.handled.Add(ctx, 1, m.failed...)
				return
			}
			m.handled.Add(ctx, 1, m.ok...)
		},
		Waiting:      func(*kafkaadapter.Message) { m.waiting.Add(ctx, 1, m.named...) },
		Unrecorded:   func(*kafkaadapter.Message, error) { m.unrecorded.Add(ctx, 1, m.named...) },
		Parked:       func(*kafkaadapter.Message, error) { m.parked.Add(ctx, 1, m.named...) },
		CommitFailed: func(string, int32, error) { m.commitsFailed.Add(ctx, 1, m.named...) },
		Revoked:      func(_ string, _ int32, _, abandoned int) { m.abandoned.Add(ctx, int64(abandoned), m.named...) },
	}
}

// ObserveAdapter has the progress of an adapter collected, until Close; it costs a few locks a
// partition. One adapter for each Metrics: a nil one and a second one are errors.
func (m *Metrics) ObserveAdapter(adapter *kafkaadapter.Adapter) error {
	if adapter == nil {
		return errors.New("saramametric: the adapter is nil")
	}
	return m.observe(adapter.Progress)
}

// Close ends the observation of the adapter. What hooks tell is counted as before. A second call
// does nothing.
func (m *Metrics) Close() error { return m.maker.Close() }

func (m *Metrics) observe(progress func() []kafkaadapter.Progress) error {
	partitions := m.maker.Gauge("onceward.kafka.partitions", "{partition}", "Partitions that this member has")
	age := m.maker.Gauge("onceward.kafka.age", "s", "For how long the partition that is furthest behind has waited for one message")
	lag := m.maker.Gauge("onceward.kafka.lag", "{message}", "Offsets that the logs have beyond what is done, as of the last fetch, of all partitions")
	inFlight := m.maker.Gauge("onceward.kafka.in_flight", "{message}", "Messages that are held, of all partitions")
	paused := m.maker.Gauge("onceward.kafka.paused", "{partition}", "Partitions that wait, by what for")
	named := m.maker.Set()
	backlog, store, owner := m.maker.Set(pauseKey.String("backlog")), m.maker.Set(pauseKey.String("store")), m.maker.Set(pauseKey.String("not_owned"))
	return m.maker.Observe("an adapter", func(_ context.Context, to metric.Observer) {
		var oldest time.Duration
		var behind, held, backlogged, storeDown, notOwned float64
		all := progress()
		for _, p := range all {
			oldest = max(oldest, p.Age)
			behind += float64(max(0, p.Lag))
			held += float64(p.InFlight)
			backlogged += meter.Flag(p.Backlogged)
			storeDown += meter.Flag(p.StoreDown)
			notOwned += meter.Flag(p.NotOwned)
		}
		to.ObserveFloat64(partitions, float64(len(all)), named)
		to.ObserveFloat64(age, meter.Seconds(oldest), named)
		to.ObserveFloat64(lag, behind, named)
		to.ObserveFloat64(inFlight, held, named)
		to.ObserveFloat64(paused, backlogged, backlog)
		to.ObserveFloat64(paused, storeDown, store)
		to.ObserveFloat64(paused, notOwned, owner)
	}, partitions, age, lag, inFlight, paused)
}
