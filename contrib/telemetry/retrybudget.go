package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/httpadapter"
)

// ObserveRetryBudget adds the counts of a server's retry budget to each collection, until Close:
// the requests that the budget admitted, the retries among them, and the retries that it refused. A
// Metrics observes one such budget, so a nil budget and a second budget are errors.
func (m *Metrics) ObserveRetryBudget(budget *httpadapter.RetryBudget) error {
	if budget == nil {
		return errors.New("telemetry: the retry budget is nil")
	}
	requests := m.maker.Total("onceward.retry.server.requests", "{request}",
		"Requests with a key that the server's retry budget has admitted")
	retries := m.maker.Total("onceward.retry.server.retries", "{request}",
		"Requests among them that are retries")
	refused := m.maker.Total("onceward.retry.server.refused", "{request}",
		"Retries that the server has refused, because their principal has sent too many")
	named := m.maker.Set()
	return m.maker.Observe("a retry budget", func(_ context.Context, to metric.Observer) {
		now := budget.Stats()
		to.ObserveInt64(requests, now.Admitted, named)
		to.ObserveInt64(retries, now.Retries, named)
		to.ObserveInt64(refused, now.Refused, named)
	}, requests, retries, refused)
}
