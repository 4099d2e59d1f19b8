package kafka_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// saramaWith starts members that offer the group these strategies, each member its own:
// some have a state.
func saramaWith(strategies ...func() sarama.BalanceStrategy) func(*testing.T,
	memberConfig) *member {
	return func(t *testing.T, mc memberConfig) *member {
		t.Helper()
		m := newMember(t, &mc)
		cfg, closeProducer := saramaAdapterConfig(t, m, &mc)
		a, err := kafkaadapter.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		client := saramaClientConfig(m, &mc)
		client.Consumer.Group.Rebalance.GroupStrategies = nil
		for _, strategy := range strategies {
			client.Consumer.Group.Rebalance.GroupStrategies =
				append(client.Consumer.Group.Rebalance.GroupStrategies, strategy())
		}
		if mc.client != nil {
			mc.client(client)
		}
		if err := a.CheckConfig(client); err != nil {
			t.Fatal(err)
		}
		group, err := sarama.NewConsumerGroup(mc.brokers, mc.group, client)
		if err != nil {
			t.Fatal(err)
		}
		m.close = func() error { return errors.Join(group.Close(), closeProducer()) }
		seen := plant(mc.bug, group)
		if mc.wrap != nil {
			seen = mc.wrap(seen)
		}
		m.run(t, func(ctx context.Context) error { return a.Run(ctx, seen, []string{mc.topic}) })
		return m
	}
}

// saramaAdapterConfig is the adapter's part of a member's settings, and what closes the
// producer of its dead letters.
func saramaAdapterConfig(t *testing.T, m *member, mc *memberConfig) (kafkaadapter.Config,
	func() error) {
	t.Helper()
	handle := m.count(mc.handler)
	cfg := kafkaadapter.Config{
		Deduper: m.dedup, Scope: sceneScope, Unclaimed: mc.unclaimed, Fingerprint: mc.fingerprint,
		Timeout: mc.timeout,
		Handler: func(ctx context.Context, msg *kafkaadapter.Message) error {
			return handle(ctx, neutral(msg))
		},
		Observer: saramaObserver(mc.observer), Workers: mc.workers, HighWater: mc.highWater,
		LowWater: mc.lowWater,
		Drain:    time.Second, CommitEvery: 50 * time.Millisecond, CommitCount: 200,
		RetryBase: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond,
	}
	if mc.unordered {
		cfg.Order = kafkaadapter.Unordered
	}
	if mc.ranges != nil {
		saramaRanges(t, &cfg, mc)
	}
	if mc.drain > 0 {
		cfg.Drain = mc.drain
	}
	if mc.park != nil {
		cfg.Park = func(ctx context.Context, msg *kafkaadapter.Message, reason error) error {
			return mc.park(ctx, neutral(msg), reason)
		}
	}
	closeProducer := func() error { return nil }
	if mc.deadTopic != "" {
		cfg.Park, closeProducer = saramaDeadLetters(t, mc)
	}
	if mc.adapter != nil {
		mc.adapter(&cfg)
	}
	return cfg, closeProducer
}

// saramaDeadLetters sends to the dead-letter topic of mc.
func saramaDeadLetters(t *testing.T,
	mc *memberConfig) (park func(context.Context, *kafkaadapter.Message, error) error,
	closing func() error) {
	t.Helper()
	cfg := clientConfig()
	if err := kafkaadapter.CheckProducer(cfg); err != nil {
		t.Fatal(err)
	}
	p, err := sarama.NewSyncProducer(mc.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	park, err = kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: p, Topic: func(*kafkaadapter.Message) string { return mc.deadTopic },
	})
	if err != nil {
		t.Fatal(err)
	}
	return park, sync.OnceValue(p.Close)
}

// saramaClientConfig is the client's part.
func saramaClientConfig(m *member, mc *memberConfig) *sarama.Config {
	c := clientConfig()
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, m.dialer
	c.ClientID, c.Consumer.Group.InstanceId = m.name, mc.instance
	if mc.session > 0 {
		c.Consumer.Group.Session.Timeout = mc.session
	}
	if mc.rebalance > 0 {
		c.Consumer.Group.Rebalance.Timeout = mc.rebalance
	}
	if mc.refresh > 0 {
		c.Metadata.RefreshFrequency = mc.refresh
	}
	if mc.fetch > 0 {
		c.Consumer.Fetch.Default, c.ChannelBufferSize = mc.fetch, 16
	}
	return c
}

func neutral(m *kafkaadapter.Message) *kafkaMessage {
	n := received(m.ConsumerMessage)
	n.ID, n.Attempt = m.ID, m.Attempt
	return n
}

func received(m *sarama.ConsumerMessage) *kafkaMessage {
	return &kafkaMessage{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Key: m.Key,
		Value: m.Value}
}

func saramaObserver(o observer) kafkaadapter.Observer {
	out := kafkaadapter.Observer{Committing: o.Committing, Revoked: o.Revoked, Paused: o.Paused,
		GroupError: o.GroupError}
	if o.Delivered != nil {
		out.Delivered = func(m *sarama.ConsumerMessage) { o.Delivered(received(m)) }
	}
	if o.Skipped != nil {
		out.Skipped = func(m *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
			o.Skipped(neutral(m), cause)
		}
	}
	if o.Waiting != nil {
		out.Waiting = func(m *kafkaadapter.Message) { o.Waiting(neutral(m)) }
	}
	if o.Parked != nil {
		out.Parked = func(m *kafkaadapter.Message, reason error) { o.Parked(neutral(m), reason) }
	}
	return out
}

// saramaRanges has the member handle ranges.
func saramaRanges(t *testing.T, cfg *kafkaadapter.Config, mc *memberConfig) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(mc.brokers, clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	if cfg.Positions, err = kafkaadapter.NewPositions(admin, mc.topic); err != nil {
		t.Fatal(err)
	}
	cfg.Handler, cfg.Order, cfg.BatchMax = nil, kafkaadapter.ByPartition, 16
	cfg.RangeHandler = func(ctx context.Context, r *kafkaadapter.Range) error {
		return mc.ranges(ctx, stretch{r.Topic, r.TopicID, r.Partition, r.From,
			r.To, func(offset int64) (ms []*kafkaMessage) {
				for _, m := range r.Since(offset) {
					ms = append(ms, neutral(m))
				}
				return ms
			}})
	}
}
