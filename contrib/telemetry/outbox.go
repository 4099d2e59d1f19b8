package telemetry

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/outbox"
)

// LagTimeout is how long a collection waits for the statement of [Metrics.ObserveOutbox].
const LagTimeout = 5 * time.Second

// ObserveOutbox adds the lag of an outbox to each collection, until Close: how many messages are
// pending, parked and scheduled, each up to [outbox.LagLimit], and the age of the oldest pending
// message. Each collection calls Outbox.Lag once, and waits at most [LagTimeout] for it. If the
// call fails, there are no values, and a counter grows. If a service has many processes, call it in
// one of them: they would all see the same.
//
// A Metrics observes one outbox, so nil arguments and a second outbox are errors.
func (m *Metrics) ObserveOutbox(box *outbox.Outbox, db *sql.DB) error {
	if box == nil || db == nil {
		return errors.New("telemetry: the outbox or its database is nil")
	}
	return m.observeLag(func(ctx context.Context) (outbox.Lag, error) { return box.Lag(ctx, db) })
}

func (m *Metrics) observeLag(lag func(context.Context) (outbox.Lag, error)) error {
	pending := m.maker.Gauge("onceward.outbox.pending", "{message}",
		"Messages that wait to be published")
	parked := m.maker.Gauge("onceward.outbox.parked", "{message}",
		"Messages that the broker has refused for what they are")
	scheduled := m.maker.Gauge("onceward.outbox.scheduled", "{message}",
		"Messages whose time to be published has not come")
	oldest := m.maker.Gauge("onceward.outbox.lag", "s",
		"Age of the oldest pending message, by the database's clock")
	failures := m.maker.Total("onceward.outbox.lag.errors", "{error}",
		"Collections to which the database did not answer")
	named := m.maker.Set()
	var failed atomic.Int64
	return m.maker.Observe("an outbox", func(ctx context.Context, to metric.Observer) {
		ctx, cancel := context.WithTimeout(ctx, LagTimeout)
		defer cancel()
		now, err := lag(ctx)
		if err != nil {
			failed.Add(1)
		}
		to.ObserveInt64(failures, failed.Load(), named)
		if err != nil {
			return
		}
		to.ObserveFloat64(pending, float64(now.Pending), named)
		to.ObserveFloat64(parked, float64(now.Parked), named)
		to.ObserveFloat64(scheduled, float64(now.Scheduled), named)
		to.ObserveFloat64(oldest, meter.Seconds(now.Oldest), named)
	}, pending, parked, scheduled, oldest, failures)
}

// ObserveRelay adds the counts of a relay and its failing topics to each collection, until Close.
// It makes no round trip. At most [MaxTopics] topics have a series of their own at one time. A
// Metrics observes one relay, so a nil relay and a second relay are errors.
func (m *Metrics) ObserveRelay(relay *outbox.Relay) error {
	if relay == nil {
		return errors.New("telemetry: the relay is nil")
	}
	if err := m.observeStats(relay.Stats); err != nil {
		return err
	}
	return m.observeTopics(relay.Failing)
}

// MaxTopics is how many failing topics of a relay have a value of their own. These are the topics
// that have failed for longest. The count includes all failing topics.
const MaxTopics = 20

func (m *Metrics) observeTopics(failing func() []outbox.FailingTopic) error {
	count := m.maker.Gauge("onceward.outbox.relay.topics.failing", "{topic}",
		"Topics that this relay leaves out, but for one message now and then")
	since := m.maker.Gauge("onceward.outbox.relay.topic.failing",
		"s", "For how long a topic has failed or been slow")
	named := m.maker.Set()
	return m.maker.Observe("the topics of a relay", func(_ context.Context, to metric.Observer) {
		now := failing()
		to.ObserveFloat64(count, float64(len(now)), named)
		slices.SortStableFunc(now, func(a, b outbox.FailingTopic) int {
			return a.Since.Compare(b.Since)
		})
		for _, t := range now[:min(len(now), MaxTopics)] {
			to.ObserveFloat64(since, meter.Seconds(time.Since(t.Since)),
				m.maker.Set(attribute.String("onceward.topic", t.Topic)))
		}
	}, count, since)
}

func (m *Metrics) observeStats(stats func() outbox.Stats) error {
	published := m.maker.Total("onceward.outbox.relay.published", "{message}",
		"Messages whose deletion is committed")
	batches := m.maker.Total("onceward.outbox.relay.batches", "{batch}",
		"Transactions that have deleted published messages")
	failures := m.maker.Total("onceward.outbox.relay.failures", "{failure}",
		"Messages that failed by themselves, calls of which nothing was acknowledged, and turns that failed")
	parked := m.maker.Total("onceward.outbox.relay.parked", "{message}",
		"Messages that this relay has parked")
	overtaken := m.maker.Total("onceward.outbox.relay.overtaken", "{message}",
		"Messages acknowledged after an earlier one of their key had failed")
	named := m.maker.Set()
	return m.maker.Observe("a relay", func(_ context.Context, to metric.Observer) {
		now := stats()
		to.ObserveInt64(published, now.Published, named)
		to.ObserveInt64(batches, now.Batches, named)
		to.ObserveInt64(failures, now.Failures, named)
		to.ObserveInt64(parked, now.Parked, named)
		to.ObserveInt64(overtaken, now.Overtaken, named)
	}, published, batches, failures, parked, overtaken)
}
