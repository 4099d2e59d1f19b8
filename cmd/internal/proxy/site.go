package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// site is a proxy as the settings describe it, ready to serve.
type site struct {
	http.Handler

	log      *slog.Logger
	upstream *upstream
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	dedupers []*dedup.Deduper
}

// build makes the site on a store.
func (o *Options) build(store dedup.Store, log *slog.Logger) (*site, error) {
	s := &site{log: log, upstream: newUpstream(o.target, o.TrustForwarded, log)}
	if err := s.measure(); err != nil {
		return nil, err
	}
	cfg := dedup.Config{Namespace: o.Namespace, Window: o.Window, LeaseTTL: o.Lease, Wait: o.Wait,
		Logger: log}
	for i := range o.Routes {
		if limit := o.Routes[i].ResponseLimit; limit > max(cfg.ResultLimit, resultLimit) {
			cfg.ResultLimit = limit
		}
	}
	run, err := s.runner("proxy", store, cfg)
	if err != nil {
		return nil, err
	}
	all, err := o.locations(run, store, s)
	s.Handler = router(all)
	return s, err
}

// resultLimit is the default of dedup.Config.ResultLimit.
const resultLimit = 256 << 10

// runner makes the Deduper for a group of locations, and registers its metrics under this name.
func (s *site) runner(name string, store dedup.Store,
	cfg dedup.Config) (httpadapter.Runner, error) {
	m, err := telemetry.NewMetrics(s.provider, telemetry.Config{Name: name, Window: cfg.Window})
	if err != nil {
		return nil, err
	}
	cfg.Observer = m.Observer()
	d, err := dedup.New(store, cfg)
	if err != nil {
		return nil, named(err)
	}
	s.dedupers = append(s.dedupers, d)
	return httpadapter.Claimed(d)
}

// named replaces the field of dedup.Config in an error by the name of the flag.
func named(err error) error {
	if input, ok := errors.AsType[*dedup.InputError](err); ok {
		flag := map[string]string{"Config.Namespace": "namespace", "Config.Window": "window",
			"Config.Wait": "wait", "Config.LeaseTTL": "lease"}[input.Field]
		if flag != "" {
			return fmt.Errorf("--%s %s", flag, input.Reason)
		}
	}
	return err
}

// measure registers the metrics of requests, next to those of package telemetry.
func (s *site) measure() error {
	s.registry = prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(s.registry), exporter.WithoutScopeInfo())
	if err != nil {
		return err
	}
	s.provider = sdk.NewMeterProvider(sdk.WithReader(reader))
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "onceward_proxy_requests_total", Help: "Requests that were answered.",
	}, []string{"path", "code"})
	s.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "onceward_proxy_request_duration_seconds", Help: "From the request to its answer.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, []string{"path"})
	return errors.Join(s.registry.Register(s.requests), s.registry.Register(s.seconds))
}

// count measures what a location answers. It labels the metrics with the path from the settings, so
// the number of series does not depend on the paths that clients send.
func (s *site) count(path string, next http.Handler) http.Handler {
	label := prometheus.Labels{"path": path}
	return promhttp.InstrumentHandlerDuration(s.seconds.MustCurryWith(label),
		promhttp.InstrumentHandlerCounter(s.requests.MustCurryWith(label), next))
}

// close waits until the handlers have ended, or until ctx ends.
func (s *site) close(ctx context.Context) error {
	var err error
	for _, d := range s.dedupers {
		err = errors.Join(err, d.Close(ctx))
	}
	return err
}
