package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/redismetric"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/retry"
)

// A real Prometheus reads a service in trouble: each panel of the dashboard has data, and rules
// fire. They do so without their "for", which TestAlertsFire looks at, and but for those that need
// a day (DuplicateSpike), ages of days (WindowCoverage) or a Redis that has forgotten (Amnesia).
func TestPrometheusShowsAServiceInTrouble(t *testing.T) {
	servertest.Program(t, "prometheus") // before the service starts in vain
	work, scraped := troubled(t)
	p := startPrometheus(t, scraped)
	// a series that appears with its first event has not risen
	p.until(func() error { return p.any(`up == 1`) })
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(200 * time.Millisecond)
		defer again.Stop()
		for i := 0; ; i++ {
			work(i)
			select {
			case <-stop:
				return
			case <-again.C:
			}
		}
	}()
	defer func() { close(stop); <-done }()

	filled := strings.NewReplacer("$__rate_interval", "30s", "$__range", "5m",
		"$name", "payments|orders")
	n := 0
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Expr, "onceward_redis_flagged_total") {
				continue // of a store with AllowAndFlag that has amnesia: there is none here
			}
			n++
			expr := filled.Replace(target.Expr)
			p.until(func() error {
				if err := p.any(expr); err != nil {
					return fmt.Errorf("panel %q: %w", panel.Title, err)
				}
				return nil
			})
		}
	}
	assert.GreaterOrEqual(t, n, 40, "expressions: this test looked in the wrong place")
	wanted := []string{
		"OncewardClientRetriesRefused",
		"OncewardEvictions", "OncewardFailedOpen", "OncewardFilterFalsePositives",
		"OncewardFilterSaturated", "OncewardLeaseLost", "OncewardOutboxLag",
		"OncewardOutboxParked", "OncewardOutcomeUnknown", "OncewardRetryBudgetExhausted",
		"OncewardStoreErrors", "OncewardStoreRefuses", "OncewardUncertain", "OncewardWindowLag",
		"OncewardWindowTooShort",
	}
	p.until(func() error {
		if firing := p.firing(); !slices.Equal(firing, wanted) {
			return fmt.Errorf("%v are firing, want %v", firing, wanted)
		}
		return nil
	})
}

// troubled is a service of two Dedupers, one of them in Observe mode, in which nothing goes well.
// work does some of its work.
func troubled(t *testing.T) (work func(i int), address string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	require.NoError(t, err)
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	metrics := func(name string) *telemetry.Metrics {
		m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: name, Window: window})
		require.NoError(t, err)
		return m
	}
	payments, orders := metrics("payments"), metrics("orders")
	deduper := func(m *telemetry.Metrics, store dedup.Store,
		change func(*dedup.Config)) *dedup.Deduper {
		cfg := dedup.Config{Namespace: "n", Window: window, LeaseTTL: time.Minute,
			Observer: m.Observer()}
		change(&cfg)
		d, err := dedup.New(store, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close(context.Background()) })
		return d
	}
	down := deduptest.NewFaulty(dedup.Memory(10), func(deduptest.Call) deduptest.Fault {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	})
	enforcing := deduper(payments, dedup.Memory(100_000), func(c *dedup.Config) {
		c.CacheBytes = 1 << 20
	})
	observing := deduper(orders, dedup.Memory(100_000), func(c *dedup.Config) {
		c.Mode = dedup.Observe
	})
	failing := deduper(payments, down, func(*dedup.Config) {})
	open := deduper(payments, down, func(c *dedup.Config) { c.Mode = dedup.FailOpen })

	budget, err := retry.NewBudget(retry.BudgetConfig{Floor: 3})
	require.NoError(t, err)
	lag := func(context.Context) (outbox.Lag, error) {
		return outbox.Lag{Pending: 12, Parked: 3, Oldest: 5 * time.Minute}, nil
	}
	var relayed atomic.Int64
	stats := func() outbox.Stats {
		n := relayed.Add(1)
		return outbox.Stats{Published: n, Failures: n, Overtaken: n}
	}
	retries, err := httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Most: 1})
	require.NoError(t, err)
	require.NoError(t,
		errors.Join(payments.ObserveBudget(budget), payments.ObserveRetryBudget(retries),
			payments.ObserveLag(lag), payments.ObserveStats(stats)))
	auditor, err := payments.NewAuditor(telemetry.AuditConfig{
		Horizons: []telemetry.Horizon{{Source: "stripe", For: 30 * 24 * time.Hour}},
		Lags: func(context.Context) (map[string]time.Duration, error) {
			return map[string]time.Duration{"orders": window}, nil
		},
	})
	require.NoError(t, err)
	go func() { _ = auditor.Run(t.Context()) }()
	inRedis := redisOf(t, provider)

	hooks := payments.Observer()
	ctx := t.Context()
	do := func(d *dedup.Deduper, key, payload string, fn func(context.Context) (string, error)) {
		_, _ = dedup.Do(ctx, d, key, fn, dedup.WithFingerprint([]byte(payload)))
	}
	return func(i int) {
		key := fmt.Sprint("evt_", i)
		for _, d := range []*dedup.Deduper{enforcing, observing} {
			do(d, key, "10", succeeds)
			do(d, key, "10", succeeds)
			do(d, key, "9999", succeeds) // a false duplicate
		}
		do(enforcing, "dangerous", "", func(ctx context.Context) (string, error) {
			_ = dedup.MarkIrreversible(ctx)
			return fails(ctx)
		})
		do(failing, key, "", succeeds)
		do(open, key, "", succeeds)
		hooks.LeaseLost(dedup.Event{})
		hooks.StoreError(dedup.Event{Err: driver.ErrUnreadable})
		hooks.Filtered(dedup.Event{FilterAnswer: "new", Outcome: dedup.Acquired, Saved: 2})
		hooks.FilterState(dedup.Event{Fill: 0.7, Estimated: 0.3, Observed: 0.2,
			Reason: "saturated"})
		for range 3 {
			retries.Admit("acme", "", key, false)
		}
		payments.OnRetry(retry.Event{})
		payments.OnRetry(retry.Event{GaveUp: retry.BudgetEmpty})
		inRedis.OnFinding(preflight.Finding{Code: "evicted_keys", Severity: preflight.Warning})
	}, strings.TrimPrefix(server.URL, "http://")
}

// redisOf are the metrics of a store of a real Redis.
func redisOf(t *testing.T, provider *sdk.MeterProvider) *redismetric.Metrics {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t)})
	t.Cleanup(func() { _ = client.Close() })
	m, err := redismetric.New(provider, "payments")
	require.NoError(t, err)
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t), OnFinding: m.OnFinding})
	require.NoError(t, err)
	require.NoError(t, m.ObserveStore(store))
	return m
}

// server is a Prometheus of this test's.
type server struct {
	t   *testing.T
	url string
}

const scrapeConfig = `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [alerts.yml]
scrape_configs: [{job_name: service, static_configs: [{targets: [%q]}]}]
`

func startPrometheus(t *testing.T, target string) *server {
	t.Helper()
	rules, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	impatient := regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAllString(string(rules), "")
	url := servertest.Prometheus(t,
		map[string]string{"prometheus.yml": fmt.Sprintf(scrapeConfig, target),
			"alerts.yml": impatient})
	return &server{t: t, url: url}
}

// until calls ask again and again, and fails the test if ask still fails after a long time.
func (p *server) until(ask func() error) {
	p.t.Helper()
	deadline := time.After(90 * time.Second)
	again := time.NewTicker(250 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			p.t.Fatal(err)
		case <-p.t.Context().Done():
			p.t.Fatal(err)
		case <-again.C:
		}
	}
}

func (p *server) get(path string, query url.Values, into any) error {
	return servertest.AskPrometheus(p.t.Context(), p.url, path, query, into)
}

// any returns an error unless the expression has a value that is a number.
func (p *server) any(expr string) error {
	var found struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &found); err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	for _, series := range found.Data.Result {
		text, _ := series.Value[1].(string)
		if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) {
			return nil
		}
	}
	return fmt.Errorf("%s has no data: %v", expr, found.Data.Result)
}

// firing are the names of the alerts that fire, in order.
func (p *server) firing() []string {
	var found struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	if err := p.get("/api/v1/alerts", nil, &found); err != nil {
		return nil
	}
	var names []string
	for _, alert := range found.Data.Alerts {
		if alert.State == "firing" {
			names = append(names, alert.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
