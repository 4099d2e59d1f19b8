package telemetry

import (
	"context"
	"errors"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/retry"
)

const (
	repeatKey = attribute.Key("onceward.retry.kind")
	gaveUpKey = attribute.Key("onceward.retry.reason")
)

// Why something is sent again.
const (
	repeatRetry = "retry" // it has failed
	repeatWait  = "wait"  // another request with the key is in flight
	repeatHedge = "hedge" // it is slow
)

// gaveUpNames are all values of onceward.retry.reason; the first is for reasons that this version
// does not know.
var gaveUpNames = [...]string{
	0:                   other,
	retry.AttemptsUsed:  "attempts_used",
	retry.BudgetEmpty:   "budget_empty",
	retry.DeadlineNear:  "deadline_near",
	retry.ElapsedNear:   "elapsed_near",
	retry.WaitedTooLong: "waited_too_long",
	retry.NotAllowed:    "not_allowed",
	retry.NotRepeatable: "not_repeatable",
	retry.BreakerOpen:   "breaker_open",
	retry.ContextEnded:  "context_ended",
}

type retryMetrics struct {
	repeats, givenUp metric.Int64Counter

	kinds   map[string][]metric.AddOption
	reasons [len(gaveUpNames)][]metric.AddOption
}

func (r *retryMetrics) make(m *meter.Maker) {
	r.repeats = m.Counter("onceward.retry.repeats", "{request}",
		"Requests that were sent once more: retries, waits for an answer in flight, and hedges")
	r.givenUp = m.Counter("onceward.retry.given_up", "{call}",
		"Calls that failed, were worth another attempt, and got none")
	r.kinds = map[string][]metric.AddOption{}
	for _, kind := range []string{repeatRetry, repeatWait, repeatHedge} {
		r.kinds[kind] = m.Add(repeatKey.String(kind))
	}
	for i, reason := range gaveUpNames {
		r.reasons[i] = m.Add(gaveUpKey.String(reason))
	}
}

// OnRetry is for [retry.Policy].OnRetry. If you have a hook of your own, call OnRetry in it.
func (m *Metrics) OnRetry(e retry.Event) {
	r := &m.retry
	ctx := context.Background()
	switch {
	case int(e.GaveUp) >= len(gaveUpNames):
		r.givenUp.Add(ctx, 1, r.reasons[0]...)
	case e.GaveUp != 0:
		r.givenUp.Add(ctx, 1, r.reasons[e.GaveUp]...)
	case e.Hedge:
		r.repeats.Add(ctx, 1, r.kinds[repeatHedge]...)
	case e.Wait:
		r.repeats.Add(ctx, 1, r.kinds[repeatWait]...)
	default:
		r.repeats.Add(ctx, 1, r.kinds[repeatRetry]...)
	}
}

// ObserveBudget adds the tokens of a budget to each collection, until Close. An unlimited budget
// has no series. A Metrics observes one budget, so a nil budget and a second budget are errors.
func (m *Metrics) ObserveBudget(budget *retry.Budget) error {
	if budget == nil {
		return errors.New("telemetry: the budget is nil")
	}
	tokens := m.maker.Gauge("onceward.retry.budget.tokens", "{retry}",
		"Retries that the budget would pay for now")
	named := m.maker.Set()
	// as dedupMetrics.zero does
	m.retry.givenUp.Add(context.Background(), 0, m.retry.reasons[retry.BudgetEmpty]...)
	return m.maker.Observe("a budget", func(_ context.Context, to metric.Observer) {
		if n := budget.Tokens(); !math.IsInf(n, 0) {
			to.ObserveFloat64(tokens, n, named)
		}
	}, tokens)
}
