package telemetry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// ObserveUncertain adds the uncertain keys of a store to each collection, until Close: their
// number, and the age of the oldest. The store has to be a [driver.Resolvable]. Each collection
// lists these keys, and waits at most [LagTimeout] for the list. If the list fails, there are no
// values, and a counter grows. If a service has many processes, call it in one of them: they would
// all see the same.
//
// A Metrics observes one store, so a second store is an error, and so is a store that cannot list
// its uncertain keys.
func (m *Metrics) ObserveUncertain(store dedup.Store) error {
	lister, ok := store.(driver.Resolvable)
	if !ok {
		return errors.New("telemetry: the store does not list its uncertain keys")
	}
	keys := m.maker.Gauge("onceward.dedup.uncertain.keys", "{key}",
		"Keys of which nobody knows whether their effect has happened")
	oldest := m.maker.Gauge("onceward.dedup.uncertain.oldest", "s",
		"How long ago the oldest of them passed its point of no return")
	failures := m.maker.Total("onceward.dedup.uncertain.errors", "{error}",
		"Collections to which the store did not answer")
	named := m.maker.Set()
	var failed atomic.Int64
	return m.maker.Observe("uncertain keys", func(ctx context.Context, to metric.Observer) {
		ctx, cancel := context.WithTimeout(ctx, LagTimeout)
		defer cancel()
		n, age, err := countUncertain(ctx, lister)
		if err != nil {
			failed.Add(1)
		}
		to.ObserveInt64(failures, failed.Load(), named)
		if err != nil {
			return
		}
		to.ObserveFloat64(keys, float64(n), named)
		to.ObserveFloat64(oldest, meter.Seconds(age), named)
	}, keys, oldest, failures)
}

// countUncertain counts the keys, each once.
func countUncertain(ctx context.Context, store driver.Resolvable) (n int, oldest time.Duration,
	err error) {
	seen := make(map[driver.ID]struct{})
	for cursor := ""; ; {
		page, next, err := store.Uncertain(ctx, cursor, 1000)
		if err != nil {
			return 0, 0, err
		}
		for i := range page {
			seen[page[i].ID] = struct{}{}
			oldest = max(oldest, page[i].Age)
		}
		if next == "" {
			return len(seen), oldest, nil
		}
		cursor = next
	}
}
