package telemetry_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/retry"
)

func TestRetries(t *testing.T) {
	m, reader := newMetrics(t)
	budget, err := retry.NewBudget(retry.BudgetConfig{Floor: 3})
	require.NoError(t, err)
	require.NoError(t, m.ObserveBudget(budget))
	policy := retry.Policy{Attempts: 3, Backoff: retry.Backoff{Cap: time.Millisecond},
		Budget: budget, OnRetry: m.OnRetry}
	for range 2 {
		_, err := retry.Do(t.Context(), policy, func(context.Context, int) (int, error) {
			return 0, errors.New("down")
		})
		require.Error(t, err, "no error")
	}
	m.OnRetry(retry.Event{Hedge: true})
	m.OnRetry(retry.Event{Wait: true})
	m.OnRetry(retry.Event{Wait: true, GaveUp: retry.WaitedTooLong})
	m.OnRetry(retry.Event{GaveUp: 200})
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.retry", map[string]float64{
		"onceward.retry.repeats{retry.kind=retry}":              3,
		"onceward.retry.repeats{retry.kind=hedge}":              1,
		"onceward.retry.repeats{retry.kind=wait}":               1,
		"onceward.retry.given_up{retry.reason=attempts_used}":   1,
		"onceward.retry.given_up{retry.reason=budget_empty}":    1,
		"onceward.retry.given_up{retry.reason=waited_too_long}": 1,
		"onceward.retry.given_up{retry.reason=other}":           1,
		"onceward.retry.budget.tokens":                          budget.Tokens(),
	})
	assert.LessOrEqual(t, budget.Tokens(), float64(1), "tokens are left")
}

// Every reason that package retry has is told apart.
func TestEveryReasonToGiveUpHasItsValue(t *testing.T) {
	m, reader := newMetrics(t)
	n := 0
	for reason := retry.AttemptsUsed; reason <= retry.ContextEnded; reason++ {
		m.OnRetry(retry.Event{GaveUp: reason})
		n++
	}
	next := retry.ContextEnded + 1
	assert.True(t, strings.HasPrefix(next.String(), "Reason("),
		"package retry has another reason, %q", next)
	got := metrictest.Collect(t, reader)
	maps.DeleteFunc(got, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "onceward.retry")
	})
	assert.Len(t, got, n, "%d reasons are counted as %v", n, got)
	assert.Zero(t, got["onceward.retry.given_up{retry.reason=other}"],
		"%d reasons are counted as %v", n, got)
}

func TestBudgetsThatAreNotObserved(t *testing.T) {
	m, reader := newMetrics(t)
	assert.Error(t, m.ObserveBudget(nil), "a nil budget is no error")
	require.NoError(t, m.ObserveBudget(retry.Unlimited()))
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.retry", nil)
	assert.Error(t, m.ObserveBudget(retry.Unlimited()),
		"a second budget is no error: two values of one series")
	require.NoError(t, m.Close())
	assert.Error(t, m.ObserveBudget(retry.Unlimited()), "after Close it can be observed")
}
