package kafkaconfluent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

// suiteMember is a consumer with the properties of its client.
type suiteMember struct {
	*Consumer
	config kafka.ConfigMap
	topics []string
}

// Run implements drivertest.Consumer.
func (m suiteMember) Run(ctx context.Context) error {
	return m.Consumer.Run(ctx, m.config, m.topics)
}

func newSuiteMember(m drivertest.Member) (drivertest.Consumer, error) {
	c, err := New(m.Group, m.Config)
	if err != nil {
		return nil, err
	}
	all := kafka.ConfigMap{"bootstrap.servers": strings.Join(m.Brokers, ","),
		"max.poll.interval.ms":               int(m.Rebalance.Milliseconds()),
		"topic.metadata.refresh.interval.ms": 1000}
	switch m.Mode {
	case drivertest.ServerSide:
		all["group.protocol"] = "consumer"
	case drivertest.Cooperative:
		all["partition.assignment.strategy"] = "cooperative-sticky"
	}
	if m.Mode != drivertest.ServerSide {
		// an unknown member joins under a new id, and the brokers wait for the old one
		all["session.timeout.ms"] = int(min(m.Session, 6*time.Second).Milliseconds())
		all["heartbeat.interval.ms"] = 100
	}
	if m.Instance != "" {
		all["group.instance.id"] = m.Instance
	}
	if m.FetchBytes > 0 {
		all["fetch.message.max.bytes"] = m.FetchBytes
	}
	return suiteMember{c, all, m.Topics}, nil
}

func suiteProducer(t testing.TB, addrs []string, limit int) kafkaadapter.Producer {
	t.Helper()
	config := kafka.ConfigMap{"bootstrap.servers": strings.Join(addrs, ","),
		"message.timeout.ms": 5000}
	if limit > 0 {
		config["message.max.bytes"] = limit
	}
	return producerOf(t, config)
}

// producerOf is a producer whose client has these properties.
func producerOf(t testing.TB, config kafka.ConfigMap) kafkaadapter.Producer {
	t.Helper()
	require.NoError(t, CheckProducer(config))
	client, err := kafka.NewProducer(&config)
	require.NoError(t, err)
	go func() {
		for range client.Events() { // until it is closed
		}
	}()
	t.Cleanup(client.Close)
	p, err := Producer(client)
	require.NoError(t, err)
	return p
}

// The driver keeps what every driver promises.
func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Driver{
		Cluster: func(t testing.TB) drivertest.Cluster { return newBrokers(t) },
		New:     newSuiteMember, Producer: suiteProducer,
		Code:  func(err error) int16 { return int16(codeOf(err)) },
		Modes: []drivertest.Mode{drivertest.Cooperative, drivertest.Eager, drivertest.ServerSide},
		Lacks: map[string]string{
			"own/generation":       "librdkafka does not tell it",
			"commits/fenced_cause": "librdkafka may tell of the lost partitions first",
			"members/crash":        "the connections of librdkafka cannot be cut",

			"commits/fenced/ILLEGAL_GENERATION/KIP-848": "there are no generations",
		},
	})
}
