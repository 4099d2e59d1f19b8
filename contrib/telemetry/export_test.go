package telemetry

import (
	"context"

	"github.com/onceward/onceward/outbox"
)

// ObserveLag is ObserveOutbox without a database, and ObserveStats is ObserveRelay without a relay.
func (m *Metrics) ObserveLag(lag func(context.Context) (outbox.Lag, error)) error {
	return m.observeLag(lag)
}

func (m *Metrics) ObserveStats(stats func() outbox.Stats) error { return m.observeStats(stats) }
