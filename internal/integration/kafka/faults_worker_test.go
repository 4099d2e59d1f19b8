package kafka_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkaconfluent"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/redisadapter"
)

const (
	faultedSession = 3 * time.Second
	faultedLease   = 3 * time.Second
	// faultedDeliveries is the delivery limit of the share group.
	faultedDeliveries = 10
)

// faultedFlavors consume until ctx ends, as members of the group of a process under faults.
var faultedFlavors = map[string]func(context.Context, *membership, kafkaadapter.Config) error{
	"sarama": func(ctx context.Context, m *membership, cfg kafkaadapter.Config) error {
		return m.consume(ctx, "sarama", cfg)
	},
	"franz-classic": faultedFranz(kgo.Balancers(kgo.CooperativeStickyBalancer())),
	"franz-848":     faultedFranz(kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()),
	"franz-share":   faultedShare,
	"segmentio": func(ctx context.Context, m *membership, cfg kafkaadapter.Config) error {
		c, err := m.segmentio(cfg)
		if err != nil {
			return err
		}
		return c.Run(ctx)
	},
	"confluent": faultedConfluent,
}

func faultedFranz(opts ...kgo.Opt) func(context.Context, *membership, kafkaadapter.Config) error {
	return func(ctx context.Context, m *membership, cfg kafkaadapter.Config) error {
		c, err := kafkafranz.New(m.group, cfg)
		if err != nil {
			return err
		}
		return c.Run(ctx, append(m.franzOptions(), opts...)...)
	}
}

func faultedShare(ctx context.Context, m *membership, cfg kafkaadapter.Config) error {
	cfg.Tuning.CommitEvery, cfg.Tuning.Workers = 0, 4
	s, err := kafkafranz.NewShare(m.group, cfg,
		kafkafranz.ShareOptions{Deliveries: faultedDeliveries})
	if err != nil {
		return err
	}
	return s.Run(ctx, kgo.SeedBrokers(m.brokers...), kgo.ConsumeTopics(m.topics...),
		kgo.FetchMaxWait(100*time.Millisecond))
}

func faultedConfluent(ctx context.Context, m *membership, cfg kafkaadapter.Config) error {
	c, err := kafkaconfluent.New(m.group, cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx, kafka.ConfigMap{
		"bootstrap.servers":  strings.Join(m.brokers, ","),
		"session.timeout.ms": int(faultedSession / time.Millisecond), "heartbeat.interval.ms": 500,
		"max.poll.interval.ms": 30_000, "log_level": 0,
		"reconnect.backoff.max.ms": 1000,
	}, m.topics)
}

// faultedWorker is a member that is killed, stopped and cut off at random. It writes down what it
// does in a file that all processes of its flavor append to; the judge reads that.
type faultedWorker struct {
	cfg   workerConfig
	lines *faultLines
}

func workFaulted(ctx context.Context, cfg workerConfig) error {
	lines, err := openFaultLines(cfg.Effects)
	if err != nil {
		return err
	}
	defer func() { _ = lines.file.Close() }()
	w := &faultedWorker{cfg: cfg, lines: lines}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel() // the parent has gone
		w.obey(ctx, os.Stdin)
	}()
	for {
		err := w.consume(ctx)
		if ctx.Err() != nil {
			return err
		}
		w.lines.say("ended", fmt.Sprintf("%.400q", fmt.Sprint(err)), "", 0, 0)
		if input := (*dedup.InputError)(nil); errors.As(err, &input) {
			return err
		}
		if backoff.Sleep(ctx, 300*time.Millisecond) != nil {
			return nil
		}
	}
}

// consume opens the store and runs a consumer until it ends. Redis and Kafka may be out of reach
// when it begins.
func (w *faultedWorker) consume(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: w.cfg.Redis})
	defer func() { _ = client.Close() }()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: w.cfg.Prefix})
	if err != nil {
		return err
	}
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: faultedLease, Hold: 30 * time.Minute})
	if err != nil {
		return err
	}
	m := w.cfg.membership()
	m.session, m.heartbeat, m.rebalance = faultedSession, 500*time.Millisecond, 6*time.Second
	err = faultedFlavors[w.cfg.Flavor](ctx, m, w.config(d))
	over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, d.Close(over))
}

func (w *faultedWorker) config(d *dedup.Deduper) kafkaadapter.Config {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if f, err := os.OpenFile(w.cfg.Effects+".log", os.O_APPEND|os.O_WRONLY|os.O_CREATE,
		0o600); err == nil {
		log = slog.New(slog.NewTextHandler(f, nil)).With("pid", os.Getpid())
	}
	return kafkaadapter.Config{
		Deduper: d, Handler: w.handle, Logger: log,
		Park: func(_ context.Context, m *kafkaadapter.Message, _ error) error {
			w.say("parked", m)
			return nil
		},
		Attempts: kafkaadapter.Attempts{RetryBase: 50 * time.Millisecond, RetryMax: time.Second},
		Tuning: kafkaadapter.Tuning{Workers: 8, Drain: time.Second,
			CommitEvery: 100 * time.Millisecond},
		Observer: kafkaadapter.Observer{
			Delivered: func(m *kafkaadapter.Message) { w.say("delivered", m) },
			Recorded:  func(m *kafkaadapter.Message, _ time.Duration) { w.say("recorded", m) },
			Unrecorded: func(m *kafkaadapter.Message, _ error) {
				w.say("unrecorded", m)
			},
			GroupError: func(err error) {
				w.lines.say("error", fmt.Sprintf("%.200q", err.Error()), "", 0, 0)
			},
		},
	}
}

func (w *faultedWorker) say(what string, m *kafkaadapter.Message) {
	id := m.ID
	if id == "" {
		id = "-"
	}
	w.lines.say(what, id, m.Topic, m.Partition, m.Offset)
}

// handle has the effect after some milliseconds.
func (w *faultedWorker) handle(ctx context.Context, m *kafkaadapter.Message) error {
	w.say("begun", m)
	//nolint:gosec // a test
	err := backoff.Sleep(ctx, time.Duration(1+rand.IntN(20))*time.Millisecond)
	if err == nil {
		w.say("effect", m)
		if rand.IntN(4) == 0 { //nolint:gosec // a test
			// So that a kill, a stop or an outage often comes between an effect and its record.
			_ = backoff.Sleep(context.WithoutCancel(ctx), 150*time.Millisecond)
		}
	}
	if errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
		w.say("lost", m)
	}
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// obey reads what to do to this process: "cut broker 300ms" and "cut redis 300ms".
func (w *faultedWorker) obey(ctx context.Context, from io.Reader) {
	for orders := bufio.NewScanner(from); orders.Scan(); {
		var whom, length string
		if _, err := fmt.Sscanf(orders.Text(), "cut %s %s", &whom, &length); err != nil {
			continue
		}
		addrs := w.cfg.Brokers
		if whom == "redis" {
			addrs = []string{w.cfg.Redis}
		}
		long, err := time.ParseDuration(length)
		if err != nil {
			continue
		}
		go cutOff(ctx, addrs, long)
	}
}

// cutOff ends all connections to addrs again and again for the time long, whichever library has
// made them.
func cutOff(ctx context.Context, addrs []string, long time.Duration) {
	for until := time.Now().Add(long); ; {
		endConnections(addrs)
		if !time.Now().Before(until) || backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// faultedProcess is the process of a member. The test sends it orders and signals.
type faultedProcess struct {
	cfg workerConfig

	cmd    *exec.Cmd
	orders io.WriteCloser
	ended  chan error
}

func (p *faultedProcess) pid() int { return p.cmd.Process.Pid }

// order tells the process to cut its connections to whom for the time long. A process that has
// ended gets no order.
func (p *faultedProcess) order(whom string, long time.Duration) {
	_, _ = fmt.Fprintf(p.orders, "cut %s %v\n", whom, long)
}

func flavorNames() []string {
	names := make([]string, 0, len(faultedFlavors))
	for name := range faultedFlavors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
