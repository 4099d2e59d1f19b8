//go:build browser

package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/IBM/sarama"
	metrics "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/kafkametric"
	"github.com/onceward/onceward/contrib/telemetry/redismetric"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/redisadapter"
)

const (
	workerEnv = "ONCEWARD_DASHBOARD_WORKER"
	topic     = "payments"
	// window is as short as the time that is shown, and a bound of the histogram of ages.
	window = 5 * time.Minute
	lease  = 2 * time.Second
)

// TestMain runs a worker if the environment says so.
func TestMain(m *testing.M) {
	text := os.Getenv(workerEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := work(text, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// job is the configuration of a worker.
type job struct {
	Listen string // where its metrics are
	Kafka  []string
	Redis  string
	Prefix string
}

// process is a worker, seen from the test. It ends when its standard input does, also if the test
// is killed.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startWorker(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &process{cmd, stdin}
}

// kill ends it with SIGKILL, so that it can tell nobody.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}

// work consumes the topic in the Claimed composition: claim and record in Redis, an effect that
// takes its time.
func work(text string, stdin io.Reader) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
		<-time.After(5 * time.Second) // the test has ended
		os.Exit(1)
	}()
	provider, err := expose(j.Listen)
	if err != nil {
		return err
	}
	m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: topic, Window: window})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: j.Redis})
	defer func() { _ = client.Close() }()
	store, err := openStore(ctx, provider, topic, client,
		guarded(j.Prefix, redisadapter.AllowAndFlag))
	if err != nil {
		return err
	}
	go func() { _ = store.Watch(ctx, time.Second) }()
	d, err := dedup.New(store, dedup.Config{Namespace: topic, Window: window, LeaseTTL: lease,
		Observer: m.Observer(), CacheBytes: 1 << 20, SeenOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close(context.WithoutCancel(ctx)) }()
	return consume(ctx, provider, j, d, m)
}

func consume(ctx context.Context, provider *sdk.MeterProvider, j job, d *dedup.Deduper,
	m *telemetry.Metrics) error {
	kafka, err := kafkametric.New(provider, topic)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(j.Kafka, consumerConfig())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	auditor, err := m.NewAuditor(telemetry.AuditConfig{
		Every: 5 * time.Second,
		Ask: func(context.Context) ([]telemetry.Horizon, error) {
			kept, err := kafkasarama.Retentions(admin, topic)
			return telemetry.Horizons(kept), err
		},
		Lags: func(context.Context) (map[string]time.Duration, error) {
			return kafkasarama.Lags(client, "payers", topic)
		},
	})
	if err != nil {
		return err
	}
	go func() { _ = auditor.Run(ctx) }()
	c, err := kafkasarama.New(client, "payers", kafkaadapter.Config{
		Deduper: d, Handler: handle,
		Attempts: kafkaadapter.Attempts{RetryBase: 50 * time.Millisecond},
		Tuning: kafkaadapter.Tuning{Workers: 4, BatchMax: 32, HighWater: 128,
			Drain: time.Second},
		Observer: observed(kafka, m), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := kafka.Observe(c.Progress); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(j.Kafka, "payers", consumerConfig())
	if err != nil {
		return err
	}
	err = c.Run(ctx, group, []string{topic})
	return errors.Join(err, group.Close())
}

// observed counts the effects of old messages, too.
func observed(kafka *kafkametric.Metrics, m *telemetry.Metrics) kafkaadapter.Observer {
	o := kafka.Observer()
	o.Recorded = func(message *kafkaadapter.Message, _ time.Duration) {
		m.CountEffect(message.Timestamp)
	}
	return o
}

// handle takes 20 to 100 ms, and one time in fifty half a second.
func handle(ctx context.Context, _ *kafkaadapter.Message) error {
	takes := time.Duration(20+rand.IntN(80)) * time.Millisecond
	if rand.IntN(50) == 0 {
		takes = 500 * time.Millisecond
	}
	return backoff.Sleep(ctx, takes)
}

func consumerConfig() *sarama.Config {
	c := kafkasarama.SafeConfig(sarama.NewConfig())
	c.Consumer.Group.Session.Timeout = 3 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = 6 * time.Second
	c.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	return c
}

// expose serves a provider's metrics.
func expose(address string) (*sdk.MeterProvider, error) {
	registry := metrics.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	listen, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listen) }()
	return sdk.NewMeterProvider(sdk.WithReader(reader)), nil
}

func guarded(prefix string, then redisadapter.Amnesia) redisadapter.Options {
	return redisadapter.Options{Prefix: prefix, Amnesia: then, AmnesiaFor: window,
		SuspectFor: 5 * time.Second}
}

// openStore opens a store with metrics.
func openStore(ctx context.Context, provider *sdk.MeterProvider, name string,
	client redis.UniversalClient, opts redisadapter.Options) (*redisadapter.Store, error) {
	m, err := redismetric.New(provider, name)
	if err != nil {
		return nil, err
	}
	opts.OnFinding = m.OnFinding
	store, err := redisadapter.New(ctx, client, opts)
	if err != nil {
		return nil, err
	}
	return store, m.ObserveStore(store)
}
