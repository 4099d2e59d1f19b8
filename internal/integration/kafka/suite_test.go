package kafka_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// suiteDialer dials for a member of the suite.
type suiteDialer func(ctx context.Context, network, address string) (net.Conn, error)

// Dial implements proxy.Dialer.
func (d suiteDialer) Dial(network, address string) (net.Conn, error) {
	return d(context.Background(), network, address)
}

// suiteMember is a member with sarama. Run makes its group.
type suiteMember struct {
	*kafkasarama.Consumer
	client sarama.Client
	m      drivertest.Member
	c      *sarama.Config
}

// Run implements drivertest.Consumer.
func (s *suiteMember) Run(ctx context.Context) error {
	group, err := sarama.NewConsumerGroup(s.m.Brokers, s.m.Group, s.c)
	if err != nil {
		return err
	}
	defer func() { _ = group.Close() }()
	return s.Consumer.Run(ctx, group, s.m.Topics)
}

func suiteConfig(m drivertest.Member) *sarama.Config {
	c := clientConfig()
	g := &c.Consumer.Group
	g.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if m.Mode == drivertest.Cooperative {
		g.Rebalance.GroupStrategies[0] = sarama.NewBalanceStrategyCooperativeSticky()
	}
	g.InstanceId, g.Session.Timeout, g.Rebalance.Timeout = m.Instance, m.Session, m.Rebalance
	g.Heartbeat.Interval = 100 * time.Millisecond
	c.Net.ReadTimeout = m.Rebalance + 2*time.Second
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, suiteDialer(m.Dial)
	c.Metadata.RefreshFrequency = time.Second
	if m.FetchBytes > 0 {
		c.Consumer.Fetch.Default, c.ChannelBufferSize = int32(m.FetchBytes), 16
	}
	return c
}

func newSuiteMember(m drivertest.Member) (drivertest.Consumer, error) {
	s := &suiteMember{m: m, c: suiteConfig(m)}
	var err error
	if s.client, err = sarama.NewClient(m.Brokers, s.c); err != nil {
		return nil, err
	}
	if s.Consumer, err = kafkasarama.New(s.client, m.Group, m.Config); err != nil {
		return nil, err
	}
	return s, s.CheckConfig(s.c)
}

func suiteProducer(t testing.TB, addrs []string, limit int) kafkaadapter.Producer {
	t.Helper()
	c := clientConfig()
	c.Producer.Partitioner = sarama.NewHashPartitioner
	if limit > 0 {
		c.Producer.MaxMessageBytes = limit
	}
	require.NoError(t, kafkasarama.CheckProducer(c))
	client, err := sarama.NewSyncProducer(addrs, c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	p, err := kafkasarama.Producer(client)
	require.NoError(t, err)
	return p
}

// The driver for sarama keeps what every driver promises. The root module has no embedded broker,
// so its suite is here.
func TestSaramaDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Driver{
		Cluster: func(t testing.TB) drivertest.Cluster { return newSuiteBrokers(t) },
		New:     newSuiteMember, Producer: suiteProducer,
		Code: func(err error) int16 {
			var code sarama.KError
			if errors.As(err, &code) {
				return int16(code)
			}
			return 0
		},
		Modes: []drivertest.Mode{drivertest.Cooperative, drivertest.Eager},
		Lacks: map[string]string{
			"commits/fenced/FENCED_MEMBER_EPOCH": "sarama does not have KIP-848",
			"members/lost": "to sarama a lost partition is a revoked one: " +
				"the coordinator refuses its commit",
		},
	})
}
