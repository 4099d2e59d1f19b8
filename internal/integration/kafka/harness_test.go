// Package kafka_test runs the Kafka adapter against brokers: an embedded one, and
// Apache Kafka under `make test`.
package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// embedded starts three brokers in this process.
func embedded(t *testing.T) *kfake.Cluster { return embeddedNodes(t, 3) }

func embeddedNodes(t *testing.T, n int, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(n),
		kfake.GroupMinSessionTimeout(200*time.Millisecond),
		// Members of KIP-848 get their timeouts from the brokers.
		kfake.BrokerConfigs(map[string]string{
			"group.consumer.heartbeat.interval.ms": "250",
			"group.consumer.session.timeout.ms":    "1500",
		}))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// clientConfig has timeouts short enough for a test to see a dead member. The pauses before its
// retries are short, too: a rebalance that meets another one sleeps for Rebalance.Retry.Backoff,
// two seconds by default.
func clientConfig() *sarama.Config {
	cfg := kafkasarama.SafeConfig(sarama.NewConfig())
	cfg.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
	cfg.Consumer.Group.Heartbeat.Interval = 250 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	cfg.Metadata.Retry.Backoff = 100 * time.Millisecond
	// The client waits this long for a lost answer. A join is answered only after a rebalance.
	cfg.Net.ReadTimeout = cfg.Consumer.Group.Rebalance.Timeout + 2*time.Second
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	return cfg
}

// adminConfig is for a test's own requests to brokers that nobody has killed: making a topic takes
// long on a busy machine.
func adminConfig() *sarama.Config {
	cfg := clientConfig()
	cfg.Net.ReadTimeout = time.Minute
	return cfg
}

// createTopic makes a topic and removes it after the test.
func createTopic(t *testing.T, brokers []string, topic string, partitions int32, replicas int16) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, adminConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	err = admin.CreateTopic(topic,
		&sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas}, false)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.DeleteTopic(topic) })
	for _, address := range brokers {
		broker := sarama.NewBroker(address)
		require.NoError(t, broker.Open(adminConfig()))
		t.Cleanup(func() { _ = broker.Close() })
		eventually(t, 30*time.Second, func() (bool, string) {
			return knowsTopic(broker, topic, partitions)
		})
	}
}

// knowsTopic reports whether a broker has heard of a topic and its leaders: the controller answers
// to CreateTopics before the brokers have read what it wrote.
func knowsTopic(broker *sarama.Broker, topic string, partitions int32) (bool, string) {
	answer, err := broker.GetMetadata(sarama.NewMetadataRequest(clientConfig().Version,
		[]string{topic}))
	if err != nil {
		return false, err.Error()
	}
	if len(answer.Topics) != 1 || answer.Topics[0].Err != sarama.ErrNoError ||
		len(answer.Topics[0].Partitions) != int(partitions) {
		return false, fmt.Sprintf("%s knows %v", broker.Addr(), answer.Topics)
	}
	for _, p := range answer.Topics[0].Partitions {
		if p.Err != sarama.ErrNoError {
			return false, fmt.Sprintf("%s, partition %d: %v", broker.Addr(), p.ID, p.Err)
		}
	}
	return true, ""
}

// header is a header of a message to produce.
type header struct {
	key   string
	value []byte
}

// record is a message to produce. If headers is nil, the message has one header, with its id. A nil
// value makes it a tombstone. If key is empty, it has no key.
type record struct {
	id        string
	partition int32
	key       string
	value     []byte
	headers   []header
}

func (r record) message(topic string) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Partition: r.partition}
	if r.key != "" {
		m.Key = sarama.StringEncoder(r.key)
	}
	if r.value != nil {
		m.Value = sarama.ByteEncoder(r.value)
	}
	headers := r.headers
	if headers == nil {
		headers = []header{{"message-id", []byte(r.id)}}
	}
	for _, h := range headers {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.key), Value: h.value})
	}
	return m
}

// produce sends the records in order to an empty topic and returns the id at every
// position.
func produce(t *testing.T, brokers []string, topic string, records []record) map[int32][]string {
	t.Helper()
	at := make(map[int32][]string)
	produceAt(t, brokers, topic, at, records)
	return at
}

// produceAt sends the records in order, behind those that are in at, and adds their ids to at.
func produceAt(t *testing.T, brokers []string, topic string, at map[int32][]string,
	records []record) {
	t.Helper()
	p := newProducer(t, brokers)
	defer func() { _ = p.Close() }()
	sendAt(t, p, topic, at, records)
}

// newProducer makes a producer that waits while a broker is away and sends nothing twice: tests
// rely on the positions.
func newProducer(t *testing.T, brokers []string) sarama.SyncProducer {
	t.Helper()
	cfg := clientConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 150, 200*time.Millisecond
	p, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	return p
}

func sendAt(t *testing.T, p sarama.SyncProducer, topic string, at map[int32][]string,
	records []record) {
	t.Helper()
	const batch = 500
	for len(records) > 0 {
		n := min(batch, len(records))
		msgs := make([]*sarama.ProducerMessage, n)
		for i, r := range records[:n] {
			msgs[i] = r.message(topic)
		}
		require.NoError(t, p.SendMessages(msgs))
		for i, m := range msgs {
			ids := at[m.Partition]
			require.Equal(t, int64(len(ids)), m.Offset, "produced to partition %d", m.Partition)
			at[m.Partition] = append(ids, records[i].id)
		}
		records = records[n:]
	}
}

// slowness is a factor for time limits. They are chosen for a quiet machine, and only a test that
// fails waits for slowness times the limit.
const slowness = 4

// eventually polls until cond returns true. After slowness*limit the test fails with cond's text.
func eventually(t *testing.T, limit time.Duration, cond func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(slowness * limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not after %v: %s", slowness*limit, state)
		}
	}
}

func partitionsOf(n int, i int) int32 { return int32(i % n) } // small

func idOf(i int) string { return fmt.Sprintf("evt_%06d", i) }
