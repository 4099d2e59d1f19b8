package demo

import (
	"context"
	"errors"
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

const (
	metricsPath = "/metrics"
	headerTime  = 10 * time.Second
	requestTime = 30 * time.Second
)

// pages show what the workers of a run report: the console, and metrics for Prometheus. They belong
// to the parent, so a worker's counts outlive its SIGKILL.
type pages struct {
	url       string
	observers map[worker.Composition]dedup.Observer
	closers   []func() error
}

// observed are the compositions that have an Observer.
var observed = []worker.Composition{worker.Atomic, worker.Claimed}

// openPages serves on address, which only this machine can reach, because the console does not
// authenticate anybody. It shows the records of namespace in Redis.
func openPages(ctx context.Context, address string, addrs []string, namespace string) (_ *pages,
	err error) {
	p := &pages{observers: make(map[worker.Composition]dedup.Observer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	p.closers = append(p.closers, client.Close)
	// no findings: nothing in a demo is worth keeping
	store, err := redisadapter.New(ctx, client,
		redisadapter.Options{OnFinding: func(preflight.Finding) {}})
	if err != nil {
		return nil, err
	}
	c, err := console.New(console.Options{Store: store, Name: "Onceward: demo",
		Namespace: namespace, Window: window})
	if err != nil {
		return nil, err
	}
	metrics, err := p.observe(c)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", c)
	mux.Handle(metricsPath, metrics)
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	p.url = "http://" + l.Addr().String()
	server := &http.Server{
		Handler: loopback.Only(mux), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime,
		WriteTimeout: requestTime, ErrorLog: log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	p.closers = append(p.closers, func() error {
		err := server.Close() // it cuts off the clients that still read
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return p, nil
}

// observe adds an Observer for every composition to c and to the metrics, and returns the handler
// of the metrics.
func (p *pages) observe(c *console.Console) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	for _, composition := range observed {
		name := string(composition)
		m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: name, Window: window})
		if err != nil {
			return nil, err
		}
		o, err := c.Observer(name, window)
		if err != nil {
			return nil, err
		}
		p.observers[composition] = telemetry.Join(m.Observer(), o)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// hear calls the hook that a worker of c has reported, on the Observer of c. Without pages it does
// nothing.
func (p *pages) hear(c worker.Composition, what *worker.Observed) error {
	if p == nil || what == nil {
		return nil
	}
	return what.Replay(p.observers[c])
}

func (p *pages) close() error {
	var err error
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i]())
	}
	return err
}
