// Package kafkametric measures a Kafka consumer with OpenTelemetry, for every client: the outcomes
// of messages, and the progress of partitions. Package telemetry measures the outcomes of claims
// and the age of duplicates.
//
//	metrics, err := kafkametric.New(provider, "payments")
//	...
//	cfg.Observer = metrics.Observer()
//	consumer, err := kafkasarama.New(...)
//	...
//	err = metrics.Observe(consumer.Progress)
package kafkametric

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	failedKey = attribute.Key("onceward.kafka.failed")
	pauseKey  = attribute.Key("onceward.kafka.pause")
)

// Metrics counts the events of a consumer and observes its progress, under one name. Make it with
// [New]. All methods are safe for concurrent use. Topics and partitions are in no attribute.
type Metrics struct {
	maker *meter.Maker

	handled, waiting, delayed, parked, unrecorded, missingID, commitsFailed, acksRefused,
	abandoned metric.Int64Counter

	ok, failed, named []metric.AddOption
}

// New makes the instruments with the provider. The name means what telemetry.Config.Name means; use
// the same name for the same consumer. It starts no goroutine. A nil provider and a bad name are
// errors; an error of the provider is returned as it is.
func New(provider metric.MeterProvider, name string) (*Metrics, error) {
	maker, err := meter.New("kafkametric", provider, name)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		maker: maker,
		handled: maker.Counter("onceward.kafka.handled", "{message}",
			"Runs of the handler for a message"),
		waiting: maker.Counter("onceward.kafka.waiting", "{observation}",
			"How often a message was found in flight elsewhere"),
		delayed: maker.Counter("onceward.kafka.delayed", "{message}",
			"Messages that failed, and that a topic of Attempts.Delayed has"),
		parked: maker.Counter("onceward.kafka.parked", "{message}",
			"Messages that Config.Park has kept"),
		unrecorded: maker.Counter("onceward.kafka.unrecorded", "{message}",
			"Messages that were handled, and whose record could not be confirmed: the effect may happen again"),
		missingID: maker.Counter("onceward.kafka.missing_id", "{message}",
			"Messages in which Config.ID found no id"),
		commitsFailed: maker.Counter("onceward.kafka.commit.failures", "{commit}",
			"Attempts to commit that failed, and are repeated"),
		acksRefused: maker.Counter("onceward.kafka.ack.refused", "{acknowledgement}",
			"Acknowledgements of a share group that were refused: the messages are redelivered"),
		abandoned: maker.Counter("onceward.kafka.abandoned", "{handler}",
			"Handlers that still ran when their partition was given up"),
		ok: maker.Add(failedKey.Bool(false)), failed: maker.Add(failedKey.Bool(true)),
		named: maker.Add(),
	}
	if maker.Err() != nil {
		return nil, maker.Err()
	}
	for _, rare := range []metric.Int64Counter{m.delayed, m.parked, m.unrecorded, m.missingID,
		m.commitsFailed, m.acksRefused, m.abandoned} {
		// if a series appeared with its first event, a rule would see no increase
		rare.Add(context.Background(), 0, m.named...)
	}
	return m, nil
}

func (m *Metrics) add(to metric.Int64Counter, n int) {
	to.Add(context.Background(), int64(n), m.named...)
}

// Observer returns hooks for [kafkaadapter.Config].Observer. You can set the hooks that are nil,
// and call the others in hooks of your own.
func (m *Metrics) Observer() kafkaadapter.Observer {
	return kafkaadapter.Observer{
		MissingID:    func(*kafkaadapter.Message) { m.add(m.missingID, 1) },
		Handled:      func(_ *kafkaadapter.Message, _ time.Duration, err error) { m.count(err) },
		Waiting:      func(*kafkaadapter.Message) { m.add(m.waiting, 1) },
		Unrecorded:   func(*kafkaadapter.Message, error) { m.add(m.unrecorded, 1) },
		Delayed:      func(*kafkaadapter.Message, string, error) { m.add(m.delayed, 1) },
		Parked:       func(*kafkaadapter.Message, error) { m.add(m.parked, 1) },
		CommitFailed: func(string, int32, error) { m.add(m.commitsFailed, 1) },
		AckRefused:   func(string, int32, error) { m.add(m.acksRefused, 1) },
		Revoked:      func(_ string, _ int32, _, abandoned int) { m.add(m.abandoned, abandoned) },
	}
}

// count counts a run of the handler for a message.
func (m *Metrics) count(err error) {
	if err != nil {
		m.handled.Add(context.Background(), 1, m.failed...)
		return
	}
	m.handled.Add(context.Background(), 1, m.ok...)
}

// Observe adds the progress of a consumer to each collection, until Close. The argument progress is
// the method Progress of the consumer's driver; a call costs a few locks for each partition. A
// Metrics observes one consumer, so a nil progress and a second consumer are errors.
func (m *Metrics) Observe(progress func() []kafkaadapter.Progress) error {
	if progress == nil {
		return errors.New("kafkametric: progress is nil")
	}
	partitions := m.maker.Gauge("onceward.kafka.partitions", "{partition}",
		"Partitions that this member has")
	age := m.maker.Gauge("onceward.kafka.age",
		"s", "For how long the partition that is furthest behind has waited for one message")
	lag := m.maker.Gauge("onceward.kafka.lag", "{message}",
		"Offsets that the logs have beyond what is done, as of the last fetch, of all partitions")
	inFlight := m.maker.Gauge("onceward.kafka.in_flight", "{message}",
		"Messages that are held, of all partitions")
	paused := m.maker.Gauge("onceward.kafka.paused", "{partition}",
		"Partitions that wait, by what for")
	named := m.maker.Set()
	backlog, store, owner := m.maker.Set(pauseKey.String("backlog")),
		m.maker.Set(pauseKey.String("store")), m.maker.Set(pauseKey.String("not_owned"))
	return m.maker.Observe("a consumer", func(_ context.Context, to metric.Observer) {
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

// Close ends the observation. Hooks still count. A second call does nothing.
func (m *Metrics) Close() error { return m.maker.Close() }
