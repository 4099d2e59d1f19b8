package demo

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/loopback"
	"github.com/onceward/onceward/console"
	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

const metricsPath = "/metrics"

// openPages serves the console, and metrics for Prometheus, on the address of --listen. Only this
// machine can reach it, because the console does not authenticate anybody. The pages show the
// records in Redis and what the workers report. They belong to the parent, so a worker's counts
// outlive its SIGKILL.
func (d *demo) openPages(ctx context.Context) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{d.redis}})
	d.closers = append(d.closers, func() { _ = client.Close() })
	// no findings: nothing in a demo is worth keeping
	store, err := redisadapter.New(ctx, client,
		redisadapter.Options{OnFinding: func(preflight.Finding) {}})
	if err != nil {
		return err
	}
	c, err := console.New(console.Options{Store: store, Name: "Onceward: demo",
		Namespace: d.topicName(worker.Claimed), Window: worker.Window})
	if err != nil {
		return err
	}
	metrics, err := d.observe(c)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", c)
	mux.Handle(metricsPath, metrics)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", d.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	d.url = "http://" + l.Addr().String()
	server := &http.Server{
		Handler: loopback.Only(mux), ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // until it is closed
	}()
	d.closers = append(d.closers, func() {
		_ = server.Close() // it cuts off the clients that still read
		<-served
	})
	return nil
}

// observe adds an Observer for every composition that keeps records to c and to the metrics, and
// returns the handler of the metrics.
func (d *demo) observe(c *console.Console) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	d.observers = make(map[worker.Composition]dedup.Observer)
	for _, composition := range []worker.Composition{worker.Atomic, worker.Claimed} {
		name := string(composition)
		m, err := telemetry.NewMetrics(provider,
			telemetry.Config{Name: name, Window: worker.Window})
		if err != nil {
			return nil, err
		}
		o, err := c.Observer(name, worker.Window)
		if err != nil {
			return nil, err
		}
		d.observers[composition] = telemetry.Join(m.Observer(), o)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
