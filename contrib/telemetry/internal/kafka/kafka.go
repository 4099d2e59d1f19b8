// Package kafka is what saramametric and franzmetric have in common: the instruments of a consumer
// of Kafka.
package kafka

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
)

const (
	failedKey = attribute.Key("onceward.kafka.failed")
	pauseKey  = attribute.Key("onceward.kafka.pause")
)

// Metrics counts what a consumer tells, and observes how far it is.
type Metrics struct {
	maker *meter.Maker

	handled, waiting, parked, unrecorded, missingID, commitsFailed, acksRefused,
	abandoned metric.Int64Counter

	ok, failed, named []metric.AddOption
}

// New makes the instruments; pkg is the package that its errors name.
func New(pkg string, provider metric.MeterProvider, name string) (*Metrics, error) {
	maker, err := meter.New(pkg, provider, name)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		maker: maker,
		handled: maker.Counter("onceward.kafka.handled", "{message}",
			"Runs of the handler for a message"),
		waiting: maker.Counter("onceward.kafka.waiting", "{observation}",
			"How often a message was found in flight elsewhere"),
		parked: maker.Counter("onceward.kafka.parked", "{message}",
			"Messages that Config.Park has kept"),
		unrecorded: maker.Counter("onceward.kafka.unrecorded", "{message}",
			"Messages that were handled, and whose record could not be confirmed: the effect may happen again"),
		missingID: maker.Counter("onceward.kafka.missing_id", "{message}",
			"Messages in which Config.ID found no id"),
		commitsFailed: maker.Counter("onceward.kafka.commit.failures", "{commit}",
			"Attempts to commit that failed, and are repeated"),
		acksRefused: maker.Counter("onceward.kafka.ack.refused", "{acknowledgement}",
			"Acknowledgements of a share group that did not count: the messages come again"),
		abandoned: maker.Counter("onceward.kafka.abandoned", "{handler}",
			"Handlers that still ran when their partition was given up"),
		ok: maker.Add(failedKey.Bool(false)), failed: maker.Add(failedKey.Bool(true)),
		named: maker.Add(),
	}
	if maker.Err() != nil {
		return nil, maker.Err()
	}
	for _, rare := range []metric.Int64Counter{m.parked, m.unrecorded, m.missingID, m.commitsFailed,
		m.acksRefused, m.abandoned} {
		// a series that appears with its first event has not risen
		rare.Add(context.Background(), 0, m.named...)
	}
	return m, nil
}

func (m *Metrics) add(to metric.Int64Counter, n int) {
	to.Add(context.Background(), int64(n), m.named...)
}

// Handled counts a run of the handler for a message.
func (m *Metrics) Handled(err error) {
	if err != nil {
		m.handled.Add(context.Background(), 1, m.failed...)
		return
	}
	m.handled.Add(context.Background(), 1, m.ok...)
}

// MissingID counts a message without an id.
func (m *Metrics) MissingID() { m.add(m.missingID, 1) }

// Waiting counts a message that is in flight elsewhere.
func (m *Metrics) Waiting() { m.add(m.waiting, 1) }

// Unrecorded counts an effect that is not known to be on record.
func (m *Metrics) Unrecorded() { m.add(m.unrecorded, 1) }

// Parked counts a message that was put aside.
func (m *Metrics) Parked() { m.add(m.parked, 1) }

// CommitFailed counts an attempt to commit that failed.
func (m *Metrics) CommitFailed() { m.add(m.commitsFailed, 1) }

// AckRefused counts acknowledgements of a share group that did not count.
func (m *Metrics) AckRefused() { m.add(m.acksRefused, 1) }

// Revoked counts the handlers that still ran when their partition was given up.
func (m *Metrics) Revoked(abandoned int) { m.add(m.abandoned, abandoned) }

// Progress is how far a partition is.
type Progress struct {
	Lag      int64
	InFlight int
	Age      time.Duration

	Backlogged, StoreDown, NotOwned bool
}

// Observe has the progress of all partitions collected, until Close; who is what an error calls it.
func (m *Metrics) Observe(who string, progress func() []Progress) error {
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
	return m.maker.Observe(who, func(_ context.Context, to metric.Observer) {
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

// Close ends what Observe has begun. A second call does nothing.
func (m *Metrics) Close() error { return m.maker.Close() }
