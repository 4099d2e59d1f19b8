package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// membership says how a client of either library joins a group. Brokers, group and topics are
// required. The other fields have the defaults of clientConfig.
type membership struct {
	brokers []string
	group   string
	topics  []string

	name      string        // client id
	instance  string        // makes the member a static one
	dialer    *cutDialer    // default: none, the client's own
	session   time.Duration // timeout; default 1.5 s
	heartbeat time.Duration // interval; default 250 ms
	rebalance time.Duration // timeout; default 5 s
	fetch     int32         // bytes of a partition that are fetched at once
	refresh   time.Duration // between two requests of metadata
	eager     bool          // balances eagerly: franz-go heartbeats 500 ms after a cooperative join
}

// consume consumes until ctx ends, with one of the two clients. Processes use it; a scene's members
// are started by their flavors.
func (m *membership) consume(ctx context.Context, client string, cfg kafkaadapter.Config) error {
	if client == "franz" {
		c, err := kafkafranz.New(m.group, cfg)
		if err != nil {
			return err
		}
		return c.Run(ctx, m.franzOptions()...)
	}
	s, err := newSaramaMember(m, m.saramaConfig(), cfg, 0)
	if err != nil {
		return err
	}
	return errors.Join(s.run(ctx), s.group.Close())
}

func (m *membership) saramaConfig() *sarama.Config {
	c := clientConfig()
	group := &c.Consumer.Group
	c.ClientID, group.InstanceId = cmp.Or(m.name, c.ClientID), m.instance
	group.Session.Timeout = cmp.Or(m.session, group.Session.Timeout)
	group.Heartbeat.Interval = cmp.Or(m.heartbeat, group.Heartbeat.Interval)
	group.Rebalance.Timeout = cmp.Or(m.rebalance, group.Rebalance.Timeout)
	c.Net.ReadTimeout = max(c.Net.ReadTimeout, group.Rebalance.Timeout+2*time.Second)
	c.Metadata.RefreshFrequency = cmp.Or(m.refresh, c.Metadata.RefreshFrequency)
	if m.dialer != nil {
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, m.dialer
	}
	if m.fetch > 0 {
		c.Consumer.Fetch.Default, c.ChannelBufferSize = m.fetch, 16
	}
	return c
}

func (m *membership) franzOptions() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(m.brokers...), kgo.ConsumeTopics(m.topics...),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(cmp.Or(m.heartbeat, 250*time.Millisecond)),
		kgo.SessionTimeout(cmp.Or(m.session, 1500*time.Millisecond)),
		kgo.RebalanceTimeout(cmp.Or(m.rebalance, 5*time.Second)),
	}
	if m.name != "" {
		opts = append(opts, kgo.ClientID(m.name))
	}
	if m.instance != "" {
		opts = append(opts, kgo.InstanceID(m.instance))
	}
	if m.dialer != nil {
		opts = append(opts, kgo.Dialer(m.dialer.DialContext))
	}
	if m.refresh > 0 {
		opts = append(opts, kgo.MetadataMinAge(m.refresh/2), kgo.MetadataMaxAge(m.refresh))
	}
	if m.eager {
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	}
	if m.fetch > 0 {
		opts = append(opts, kgo.FetchMaxPartitionBytes(m.fetch), kgo.FetchMaxBytes(m.fetch))
	}
	return opts
}

// saramaMember is a consumer with sarama, and its two clients: the one that commits, and the group.
type saramaMember struct {
	consumer *kafkasarama.Consumer
	commits  sarama.Client
	group    sarama.ConsumerGroup
	topics   []string
}

// newSaramaMember makes a consumer whose clients have the configuration c. The caller closes the
// group.
func newSaramaMember(m *membership, c *sarama.Config, cfg kafkaadapter.Config,
	b bug) (*saramaMember, error) {
	s := &saramaMember{topics: m.topics}
	var err error
	if s.commits, err = sarama.NewClient(m.brokers, c); err != nil {
		return nil, err
	}
	s.consumer, err = kafkasarama.New(plantedClient(b, s.commits), m.group, cfg)
	if err == nil {
		err = s.consumer.CheckConfig(c)
	}
	switch {
	case err != nil:
	case b == sharesClient:
		s.group, err = sarama.NewConsumerGroupFromClient(m.group, s.commits)
	default:
		s.group, err = sarama.NewConsumerGroup(m.brokers, m.group, c)
	}
	if err != nil {
		return nil, errors.Join(err, s.commits.Close())
	}
	s.group = plantedGroup(b, s.group)
	return s, nil
}

// run consumes until ctx ends, and closes the client that commits.
func (s *saramaMember) run(ctx context.Context) error {
	defer func() { _ = s.commits.Close() }()
	return s.consumer.Run(ctx, s.group, s.topics)
}

// deadLetters returns a Park function that sends the letters to topic.
func deadLetters(t *testing.T, p kafkaadapter.Producer,
	topic string) func(context.Context, *kafkaadapter.Message, error) error {
	t.Helper()
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: p, Topic: func(*kafkaadapter.Message) string { return topic },
	})
	require.NoError(t, err)
	return park
}

// saramaProducer returns a producer that is closed when the test ends.
func saramaProducer(t *testing.T, brokers []string) kafkaadapter.Producer {
	t.Helper()
	cfg := clientConfig()
	require.NoError(t, kafkasarama.CheckProducer(cfg))
	p, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	producer, err := kafkasarama.Producer(p)
	require.NoError(t, err)
	return producer
}

// franzProducer returns a producer that is closed when the test ends. It gives up a letter after
// limit.
func franzProducer(t *testing.T, brokers []string, limit time.Duration) kafkaadapter.Producer {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordDeliveryTimeout(limit),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond)) // a refused letter is sent again after that
	require.NoError(t, err)
	t.Cleanup(client.Close)
	producer, err := kafkafranz.Producer(client)
	require.NoError(t, err)
	return producer
}
