package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
)

// exposition returns a provider, and what Prometheus would read from it now.
func exposition(t *testing.T) (*sdk.MeterProvider, func() []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	require.NoError(t, err)
	return sdk.NewMeterProvider(sdk.WithReader(reader)), func() []string {
		response := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response,
			httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Equal(t, 200, response.Code, "%s", response.Body)
		return strings.Split(strings.TrimSpace(response.Body.String()), "\n")
	}
}

// The exposition of a Deduper has as many series for ten thousand keys as for a hundred, and no key
// is in its text.
func TestExpositionIsBounded(t *testing.T) {
	provider, read := exposition(t)
	m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: "payments", Window: window})
	require.NoError(t, err)
	d, err := dedup.New(dedup.Memory(20_000),
		dedup.Config{Namespace: "payments", Window: window, LeaseTTL: time.Minute,
			Observer: m.Observer()})
	require.NoError(t, err)
	defer func() { _ = d.Close(context.Background()) }()
	run := func(from, to int) []string {
		for i := from; i < to; i++ {
			for range 2 {
				_, err := dedup.Do(t.Context(), d, fmt.Sprint("key-", i),
					func(context.Context) (string, error) { return "ch_1", nil })
				require.NoError(t, err)
			}
		}
		return read()
	}
	few, many := run(0, 100), run(100, 10_100)
	assert.Len(t, few, len(many), "%d lines after 100 keys, %d after 10,100", len(few), len(many))
	for _, line := range []string{
		`outcome="acquired"} 10100`, `outcome="duplicate"} 10100`, `onceward_dedup_ends_total{`,
		`onceward_state="succeeded"`,
		`onceward_dedup_duplicate_age_seconds_count{`,
		`onceward_dedup_duplicate_age_seconds_bucket{`, `onceward_dedup_window_seconds{`,
	} {
		assert.True(t, slices.ContainsFunc(many, func(have string) bool {
			return strings.Contains(have, line)
		}), "nothing has %s", line)
	}
	for _, line := range many {
		assert.NotContains(t, line, "key-", "a key is exposed")
	}
}
