package kafka_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkaconfluent"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

// topicFlavor is a way to consume that notices when a topic was deleted and created again.
type topicFlavor struct {
	name    string
	start   func(*consumer) func(context.Context) error
	offsets bool            // the group commits offsets
	prepare func(*consumer) // before the group is made
}

var topicFlavors = []topicFlavor{
	{name: "sarama eager", start: saramaConsumer(sarama.NewBalanceStrategyRange), offsets: true},
	{name: "sarama cooperative", start: saramaConsumer(sarama.NewBalanceStrategyCooperativeSticky),
		offsets: true},
	{name: "franz classic", start: franzConsumer(kgo.Balancers(kgo.CooperativeStickyBalancer())),
		offsets: true},
	{name: "franz KIP-848", start: franzConsumer(kgo.Balancers(kgo.StickyBalancer()),
		kgo.ServerSideBalancer()), offsets: true},
	{name: "segmentio", start: segmentioConsumer, offsets: true},
	{name: "confluent eager", start: confluentConsumer("range"), offsets: true},
	{name: "confluent cooperative", start: confluentConsumer("cooperative-sticky"), offsets: true},
	{name: "franz share", start: shareConsumer, prepare: readShareFromStart},
}

func (c *consumer) config() kafkaadapter.Config {
	return kafkaadapter.Config{
		Deduper: c.dedup, Logger: slog.New(c.logs), Handler: c.handle,
		Tuning: kafkaadapter.Tuning{CommitEvery: 50 * time.Millisecond, Drain: time.Second},
	}
}

func (c *consumer) membership() *membership {
	return &membership{brokers: c.brokers, group: c.group, topics: c.topics,
		session: 6 * time.Second} // the least that the shared broker allows
}

func saramaConsumer(strategy func() sarama.BalanceStrategy,
) func(*consumer) func(context.Context) error {
	return func(c *consumer) func(context.Context) error {
		m := c.membership()
		client := m.saramaConfig()
		client.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
		s, err := newSaramaMember(m, client, c.config(), 0)
		require.NoError(c.t, err)
		c.t.Cleanup(func() { _ = s.group.Close() })
		return s.run
	}
}

// oftenAsked are options of a client that looks at its topics every second.
var oftenAsked = []kgo.Opt{kgo.MetadataMaxAge(time.Second),
	kgo.MetadataMinAge(250 * time.Millisecond)}

func franzConsumer(opts ...kgo.Opt) func(*consumer) func(context.Context) error {
	return func(c *consumer) func(context.Context) error {
		f, err := kafkafranz.New(c.group, c.config())
		require.NoError(c.t, err)
		all := slices.Concat(c.membership().franzOptions(), oftenAsked, opts)
		return func(ctx context.Context) error { return f.Run(ctx, all...) }
	}
}

func segmentioConsumer(c *consumer) func(context.Context) error {
	s, err := c.membership().segmentio(c.config())
	require.NoError(c.t, err)
	return s.Run
}

func confluentConsumer(strategy string) func(*consumer) func(context.Context) error {
	return func(c *consumer) func(context.Context) error {
		f, err := kafkaconfluent.New(c.group, c.config())
		require.NoError(c.t, err)
		properties := kafka.ConfigMap{"bootstrap.servers": strings.Join(c.brokers, ","),
			"session.timeout.ms": 6000, "partition.assignment.strategy": strategy}
		return func(ctx context.Context) error { return f.Run(ctx, properties, c.topics) }
	}
}

func shareConsumer(c *consumer) func(context.Context) error {
	s, err := kafkafranz.NewShare(c.group, c.config(), kafkafranz.ShareOptions{})
	require.NoError(c.t, err)
	all := append([]kgo.Opt{kgo.SeedBrokers(c.brokers...), kgo.ConsumeTopics(c.topics...)},
		oftenAsked...)
	return func(ctx context.Context) error { return s.Run(ctx, all...) }
}

// readShareFromStart makes a share group begin with the messages that are there. By default it
// begins with those that come.
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
