package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkaconfluent"
)

// confluents are the members of one group on Apache Kafka that consume with librdkafka.
type confluents struct {
	t            *testing.T
	brokers      []string
	topic, group string
	store        dedup.Store
	client       *kgo.Client

	mu      sync.Mutex
	effects map[string]int
	skipped int
}

func newConfluents(t *testing.T, partitions int32) *confluents {
	t.Helper()
	name := servertest.Prefix(t)
	c := &confluents{t: t, brokers: servertest.Kafka(t), topic: name, group: name + "_group",
		store: dedup.Memory(1 << 16), effects: make(map[string]int)}
	var err error
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.brokers...))
	require.NoError(t, err)
	t.Cleanup(c.client.Close)
	made := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = c.topic, partitions, 1
	made.Topics = append(made.Topics, topic)
	_, err = made.RequestWith(t.Context(), c.client)
	require.NoError(t, err)
	return c
}

func (c *confluents) produce(from, n int) {
	c.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		id := fmt.Append(nil, "evt_", from+i)
		records[i] = &kgo.Record{Topic: c.topic, Key: id,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: id}}}
	}
	require.NoError(c.t, c.client.ProduceSync(c.t.Context(), records...).FirstErr())
}

func (c *confluents) join(properties kafka.ConfigMap) (leave func() error, ended <-chan error) {
	c.t.Helper()
	d, err := dedup.New(c.store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: 30 * time.Second})
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- kafkaconfluent.Consume(ctx, c.brokers, c.group, []string{c.topic}, properties,
			kafkaadapter.Config{Deduper: d,
				Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
					if err := backoff.Sleep(ctx, time.Millisecond); err != nil {
						return err
					}
					c.mu.Lock()
					defer c.mu.Unlock()
					c.effects[m.ID]++
					return nil
				},
				Observer: kafkaadapter.Observer{
					Skipped: func(*kafkaadapter.Message, driver.Cause, time.Duration) {
						c.mu.Lock()
						defer c.mu.Unlock()
						c.skipped++
					},
				},
			})
	}()
	c.t.Cleanup(cancel)
	return func() error { cancel(); return <-done }, done
}

func (c *confluents) handled(n int) func() bool {
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.effects) == n
	}
}

// Members join and leave while they work, on Apache Kafka. Every message has one effect, and all
// are committed.
func TestConfluentRebalances(t *testing.T) {
	for name, properties := range map[string]kafka.ConfigMap{
		"eager": {"partition.assignment.strategy": "range", "session.timeout.ms": 6000},
		"cooperative": {"partition.assignment.strategy": "cooperative-sticky",
			"session.timeout.ms": 6000},
		"KIP-848": {"group.protocol": "consumer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConfluents(t, 4)
			c.produce(0, 2000)
			first, _ := c.join(properties)
			require.Eventually(t, func() bool { return !c.handled(0)() }, time.Minute,
				10*time.Millisecond)
			second, _ := c.join(properties)
			c.produce(2000, 2000)
			require.Eventually(t, c.handled(4000), time.Minute, 10*time.Millisecond)
			require.NoError(t, first())
			c.produce(4000, 500)
			require.Eventually(t, c.handled(4500), time.Minute, 10*time.Millisecond)
			require.NoError(t, second())
			for id, n := range c.effects {
				assert.Equal(t, 1, n, "effects of %s", id)
			}
			assert.EqualValues(t, 4500, c.committed())
			t.Log(c.skipped, "skipped")
		})
	}
}

// committed is the sum of the group's offsets.
func (c *confluents) committed() (sum int64) {
	c.t.Helper()
	client, err := kafka.NewConsumer(&kafka.ConfigMap{"group.id": c.group,
		"bootstrap.servers": strings.Join(c.brokers, ",")})
	require.NoError(c.t, err)
	defer func() { _ = client.Close() }()
	var parts []kafka.TopicPartition
	for p := range int32(4) {
		parts = append(parts, kafka.TopicPartition{Topic: &c.topic, Partition: p})
	}
	parts, err = client.Committed(parts, 10000)
	require.NoError(c.t, err)
	for _, p := range parts {
		sum += int64(p.Offset)
	}
	return sum
}

// A member that joins under the instance id of another member ends the other one.
func TestConfluentInstanceIsFenced(t *testing.T) {
	t.Parallel()
	c := newConfluents(t, 4)
	static := kafka.ConfigMap{"group.instance.id": "one", "session.timeout.ms": 6000,
		"heartbeat.interval.ms": 500}
	c.produce(0, 100)
	_, ended := c.join(static)
	require.Eventually(t, c.handled(100), time.Minute, 10*time.Millisecond)
	leave, _ := c.join(static)
	select {
	case err := <-ended:
		answer := kafka.Error{}
		require.ErrorAs(t, err, &answer)
		assert.Equal(t, kafka.ErrFencedInstanceID, answer.Code())
	case <-time.After(time.Minute):
		require.FailNow(t, "the first one runs on")
	}
	c.produce(100, 100)
	require.Eventually(t, c.handled(200), time.Minute, 10*time.Millisecond)
	require.NoError(t, leave())
}
