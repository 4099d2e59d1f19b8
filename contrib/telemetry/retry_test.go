package telemetry_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/retry"
)

func TestRetries(t *testing.T) {
	m, reader := newMetrics(t)
	budget, err := retry.NewBudget(retry.BudgetConfig{Floor: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ObserveBudget(budget); err != nil {
		t.Fatal(err)
	}
	policy := retry.Policy{Attempts: 3, Backoff: retry.Backoff{Cap: time.Millisecond},
		Budget: budget, OnRetry: m.OnRetry}
	for range 2 {
		_, err := retry.Do(t.Context(), policy, func(context.Context, int) (int, error) {
			return 0, errors.New("down")
		})
		if err == nil {
			t.Fatal("no error")
		}
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
	if budget.Tokens() > 1 {
		t.Errorf("%v tokens are left", budget.Tokens())
	}
}

// Every reason that package retry has is told apart.
func TestEveryReasonToGiveUpHasItsValue(t *testing.T) {
	m, reader := newMetrics(t)
	n := 0
	for reason := retry.AttemptsUsed; reason <= retry.ContextEnded; reason++ {
		m.OnRetry(retry.Event{GaveUp: reason})
		n++
	}
	if next := retry.ContextEnded + 1; !strings.HasPrefix(next.String(), "Reason(") {
		t.Errorf("package retry has another reason, %q", next)
	}
	got := metrictest.Collect(t, reader)
	maps.DeleteFunc(got, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "onceward.retry")
	})
	if len(got) != n || got["onceward.retry.given_up{retry.reason=other}"] != 0 {
		t.Errorf("%d reasons are counted as %v", n, got)
	}
}

func TestBudgetsThatAreNotObserved(t *testing.T) {
	m, reader := newMetrics(t)
	if err := m.ObserveBudget(nil); err == nil {
		t.Error("a nil budget is no error")
	}
	if err := m.ObserveBudget(retry.Unlimited()); err != nil {
		t.Fatal(err)
	}
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.retry", nil)
	if err := m.ObserveBudget(retry.Unlimited()); err == nil {
		t.Error("a second budget is no error: two values of one series")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.ObserveBudget(retry.Unlimited()); err == nil {
		t.Error("after Close it can be observed")
	}
}
