package kafka_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/franz"
)

// topicFlavor is a way to consume that notices when a topic is another one.
type topicFlavor struct {
	name    string
	start   func(*consumer) func(context.Context) error
	offsets bool            // the group commits offsets
	prepare func(*consumer) // before the group is made
}

var topicFlavors = []topicFlavor{
	{name: "sarama eager", start: saramaConsumer(sarama.NewBalanceStrategyRange, true),
		offsets: true},
	{name: "sarama cooperative",
		start: saramaConsumer(sarama.NewBalanceStrategyCooperativeSticky, true), offsets: true},
	{name: "sarama session commits", start: saramaConsumer(sarama.NewBalanceStrategyRange, false),
		offsets: true},
	{name: "franz classic", start: franzConsumer(kgo.Balancers(kgo.CooperativeStickyBalancer())),
		offsets: true},
	{name: "franz KIP-848", start: franzConsumer(kgo.Balancers(kgo.StickyBalancer()),
		kgo.ServerSideBalancer()), offsets: true},
	{name: "franz share", start: shareConsumer, prepare: readShareFromStart},
}

// saramaConsumer commits over a client of its own, or has Positions look at the topics.
func saramaConsumer(strategy func() sarama.BalanceStrategy,
	ownClient bool) func(*consumer) func(context.Context) error {
	return func(c *consumer) func(context.Context) error {
		cfg := clientConfig()
		cfg.Consumer.Group.Session.Timeout = 6 * time.Second // of the shared broker
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
		client, err := sarama.NewClient(c.brokers, cfg)
		require.NoError(c.t, err)
		c.t.Cleanup(func() { _ = client.Close() })
		adapter := kafkaadapter.Config{
			Deduper: c.dedup, Group: c.group, Logger: slog.New(c.logs),
			CommitEvery: 50 * time.Millisecond, Drain: time.Second,
			Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
				return c.handle(ctx, m.ID)
			},
		}
		if ownClient {
			adapter.CommitClient = client
		} else {
			admin, err := sarama.NewClusterAdminFromClient(client)
			require.NoError(c.t, err)
			adapter.Positions, err = kafkaadapter.NewPositions(admin, c.topics[0])
			require.NoError(c.t, err)
		}
		a, err := kafkaadapter.New(adapter)
		require.NoError(c.t, err)
		group, err := sarama.NewConsumerGroup(c.brokers, c.group, cfg)
		require.NoError(c.t, err)
		c.t.Cleanup(func() { _ = group.Close() })
		return func(ctx context.Context) error { return a.Run(ctx, group, c.topics) }
	}
}

func franzConsumer(opts ...kgo.Opt) func(*consumer) func(context.Context) error {
	return func(c *consumer) func(context.Context) error {
		f, err := franz.New(franz.Config{
			Deduper: c.dedup, Logger: slog.New(c.logs), CommitEvery: 50 * time.Millisecond,
			Drain: time.Second,
			Handler: func(ctx context.Context, m *franz.Message) error {
				return c.handle(ctx, m.ID)
			},
		})
		require.NoError(c.t, err)
		all := append([]kgo.Opt{
			kgo.SeedBrokers(c.brokers...), kgo.ConsumerGroup(c.group),
			kgo.ConsumeTopics(c.topics...),
			kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(250 * time.Millisecond),
			kgo.RebalanceTimeout(5 * time.Second),
			kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(250 * time.Millisecond),
		}, opts...)
		return func(ctx context.Context) error { return f.Run(ctx, all...) }
	}
}

func shareConsumer(c *consumer) func(context.Context) error {
	s, err := franz.NewShare(franz.ShareConfig{
		Deduper: c.dedup, Logger: slog.New(c.logs), Drain: time.Second,
		Handler: func(ctx context.Context, m *franz.Message) error { return c.handle(ctx, m.ID) },
	})
	require.NoError(c.t, err)
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...), kgo.ShareGroup(c.group), kgo.ConsumeTopics(c.topics...),
		kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(250 * time.Millisecond),
	}
	return func(ctx context.Context) error { return s.Run(ctx, opts...) }
}

// readShareFromStart has a share group begin with what is there: by default it begins with what
// comes.
func readShareFromStart(c *consumer) {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...))
	require.NoError(c.t, err)
	defer client.Close()
	earliest := "earliest"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, c.group
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(c.t.Context(), client)
	require.NoError(c.t, err)
	require.Len(c.t, answer.Resources, 1)
	require.NoError(c.t, kerr.ErrorForCode(answer.Resources[0].ErrorCode))
}
