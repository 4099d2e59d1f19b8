package telemetry_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/httpadapter"
)

// storm has an account send one request and five retries; the budget pays for two of them.
func storm(t *testing.T) *httpadapter.RetryBudget {
	t.Helper()
	budget, err := httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Most: 2, Ratio: 1e-6,
		PerSecond: 1e-6})
	require.NoError(t, err)
	for range 1 + 5 {
		budget.Admit("acme", "", "k", false)
	}
	return budget
}

func TestRetryBudgetOfAServer(t *testing.T) {
	m, reader := newMetrics(t)
	require.NoError(t, m.ObserveRetryBudget(storm(t)))
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.retry.server",
		map[string]float64{
			"onceward.retry.server.requests": 3,
			"onceward.retry.server.retries":  2,
			"onceward.retry.server.refused":  3,
		})
	assert.ErrorContains(t, m.ObserveRetryBudget(nil), "nil")
	assert.Error(t, m.ObserveRetryBudget(storm(t)), "two values of one series")
	require.NoError(t, m.Close())
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.retry.server", nil)
}
