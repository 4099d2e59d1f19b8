package telemetry_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
)

// Metrics for Prometheus: its exporter reads the provider, and a handler has what it read.
func Example_prometheus() {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		panic(err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	window := 72 * time.Hour
	metrics, err := telemetry.NewMetrics(provider,
		telemetry.Config{Name: "payments", Window: window})
	if err != nil {
		panic(err)
	}
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: window, LeaseTTL: 30 * time.Second,
		Observer: metrics.Observer(),
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer func() { _ = errors.Join(d.Close(ctx), metrics.Close(), provider.Shutdown(ctx)) }()

	for _, id := range []string{"evt_1", "evt_2", "evt_1"} {
		if _, err := dedup.Do(ctx, d, id, func(context.Context) (string, error) {
			return "ch_1", nil
		}); err != nil {
			panic(err)
		}
	}
	response := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(response,
		httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "onceward_dedup_claims") ||
			strings.HasPrefix(line, "onceward_dedup_window") {
			fmt.Println(line)
		}
	}
	// Output:
	// onceward_dedup_claims_total{onceward_cached="false",onceward_cause="none",onceward_name="payments",onceward_outcome="acquired"} 2
	// onceward_dedup_claims_total{onceward_cached="false",onceward_cause="none",onceward_name="payments",onceward_outcome="unknown"} 0
	// onceward_dedup_claims_total{onceward_cached="false",onceward_cause="producer_retry",onceward_name="payments",onceward_outcome="duplicate"} 1
	// onceward_dedup_window_seconds{onceward_name="payments"} 259200
}
