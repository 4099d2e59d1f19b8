package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry/franztrace"
	"github.com/onceward/onceward/contrib/telemetry/saramatrace"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/franz"
	"github.com/onceward/onceward/redisadapter"
)

// tracedMember is a member of a group whose spans are told, in a process of its own or in that
// of the test.
type tracedMember struct {
	workerConfig
	tell   func(spanSeen)
	handle handler
	batch  func(ctx context.Context, ms []*kafkaMessage) []error // in place of handle
	failed func(err error)                                       // told of commits
	// has no heartbeat for so long that it learns from a commit that it is fenced
	unheard bool
	// called before anything is put on record
	finishes func()
}

// tracedSession is long: no member of these stories has to be missed, and a slow machine must
// not make one.
const tracedSession = 30 * time.Second

// workTraced is a process that is to be killed between an effect and its record, if it holds.
func workTraced(ctx context.Context, cfg workerConfig) error {
	m := &tracedMember{workerConfig: cfg, tell: saySpan,
		handle: func(context.Context, *kafkaMessage) error { return nil }}
	if cfg.Hold {
		m.finishes = func() {
			fmt.Println("HOLDING before the record")
			<-make(chan struct{})
		}
	}
	return m.run(ctx)
}

// finishing is a store that says so before it puts anything on record.
type finishing struct {
	dedup.Store
	before func()
}

func (f finishing) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	f.before()
	return f.Store.Finish(ctx, changes)
}

func (m *tracedMember) run(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: m.Redis})
	defer func() { _ = client.Close() }()
	records, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: m.Prefix})
	if err != nil {
		return err
	}
	cfg := dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: 30 * time.Second,
		Hold: 10 * time.Minute, Labels: true}
	var store dedup.Store = records
	if m.finishes != nil {
		// for which the next one waits
		store, cfg.LeaseTTL = finishing{store, m.finishes}, 2*time.Second
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return err
	}
	run := m.sarama
	if m.Client == "franz" {
		run = m.franz
	}
	err = run(ctx, d, spanTeller{m.By, m.tell}.provider())
	return errors.Join(err, d.Close(context.WithoutCancel(ctx)))
}

func (m *tracedMember) heartbeat() time.Duration {
	if m.unheard {
		return tracedSession / 3
	}
	return 100 * time.Millisecond
}

func (m *tracedMember) commitFailed(_ string, _ int32, err error) {
	if m.failed != nil {
		m.failed(err)
	}
}

func (m *tracedMember) sarama(ctx context.Context, d *dedup.Deduper,
	provider trace.TracerProvider) error {
	tracer, err := saramatrace.New(provider, saramatrace.Config{Name: "payments", Group: m.Group})
	if err != nil {
		return err
	}
	client := clientConfig()
	client.ClientID, client.Consumer.Group.InstanceId = m.By, m.Instance
	client.Consumer.Group.Session.Timeout, client.Consumer.Group.Heartbeat.Interval = tracedSession,
		m.heartbeat()
	client.Consumer.Group.Rebalance.Timeout, client.Net.ReadTimeout = tracedSession,
		tracedSession+10*time.Second
	commits, err := sarama.NewClient(m.Brokers, client)
	if err != nil {
		return err
	}
	defer func() { _ = commits.Close() }()
	cfg := kafkaadapter.Config{
		Deduper: d, Group: m.Group, CommitClient: commits, Drain: 200 * time.Millisecond,
		CommitEvery: 50 * time.Millisecond,
		RetryBase:   20 * time.Millisecond, RetryMax: 100 * time.Millisecond,
		Handler: func(ctx context.Context, msg *kafkaadapter.Message) error {
			return m.handle(ctx, neutral(msg))
		},
		Observer: kafkaadapter.Observer{CommitFailed: m.commitFailed},
	}
	if m.batch != nil {
		cfg.Handler = nil
		cfg.BatchHandler = func(ctx context.Context, ms []*kafkaadapter.Message) []error {
			return m.batch(ctx, each(ms, neutral))
		}
	}
	a, err := kafkaadapter.New(tracer.Trace(cfg))
	if err != nil {
		return err
	}
	if err := a.CheckConfig(client); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(m.Brokers, m.Group, client)
	if err != nil {
		return err
	}
	return errors.Join(a.Run(ctx, group, []string{m.Topic}), group.Close())
}

func (m *tracedMember) franz(ctx context.Context, d *dedup.Deduper,
	provider trace.TracerProvider) error {
	tracer, err := franztrace.New(provider, franztrace.Config{Name: "payments", Group: m.Group})
	if err != nil {
		return err
	}
	cfg := franz.Config{
		Deduper: d, Drain: 200 * time.Millisecond, CommitEvery: 50 * time.Millisecond,
		RetryBase: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond,
		Handler: func(ctx context.Context, msg *franz.Message) error {
			return m.handle(ctx, franzNeutral(msg))
		},
		Observer: franz.Observer{CommitFailed: m.commitFailed},
	}
	if m.batch != nil {
		cfg.Handler = nil
		cfg.BatchHandler = func(ctx context.Context, ms []*franz.Message) []error {
			return m.batch(ctx, each(ms, franzNeutral))
		}
	}
	c, err := franz.New(tracer.Trace(cfg))
	if err != nil {
		return err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(m.Brokers...), kgo.ClientID(m.By), kgo.ConsumerGroup(m.Group),
		kgo.ConsumeTopics(m.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(m.heartbeat()), kgo.SessionTimeout(tracedSession),
		kgo.RebalanceTimeout(tracedSession),
	}
	if m.Instance != "" {
		opts = append(opts, kgo.InstanceID(m.Instance))
	}
	return c.Run(ctx, opts...)
}

func each[M any](ms []M, of func(M) *kafkaMessage) []*kafkaMessage {
	all := make([]*kafkaMessage, len(ms))
	for i, m := range ms {
		all[i] = of(m)
	}
	return all
}
