package kafka_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// Both clients find the same lag with compressed batches, with the marks of transactions, and for a
// group that has committed nothing.
func TestLags(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		cluster := embeddedNodes(t, 2, kfake.SeedTopics(2, "lags"))
		testLags(t, cluster.ListenAddrs(), "lags")
	})
	t.Run("kafka", func(t *testing.T) {
		server, topic := servertest.Kafka(t), servertest.Prefix(t)
		createTopic(t, server, topic, 2, 1)
		testLags(t, server, topic)
	})
}

// When a partition gets another leader, Lags asks that one. It used to ask the old leader until the
// client's next refresh.
func TestLagsOfMovedPartition(t *testing.T) {
	cluster := embeddedNodes(t, 2, kfake.SeedTopics(2, "lags"))
	native, err := sarama.NewClient(cluster.ListenAddrs(), clientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = native.Close() })
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for range 3 {
		got, err := kafkasarama.Lags(native, "group", "lags")
		require.NoError(t, err)
		require.Len(t, got, 1)
		got, err = kafkafranz.Lags(t.Context(), client, "group", "lags")
		require.NoError(t, err)
		require.Len(t, got, 1)
		leader, err := native.Leader("lags", 0)
		require.NoError(t, err)
		require.NoError(t, cluster.MoveTopicPartition("lags", 0, 1-leader.ID()))
	}
}

func testLags(t *testing.T, addrs []string, topic string) {
	group := topic + "-group"
	config := clientConfig()
	config.Version = sarama.V2_8_0_0
	native, err := sarama.NewClient(addrs, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = native.Close() })
	newClient := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	client := newClient(kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	record := func(partition int32, ago time.Duration) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Value: []byte("x"),
			Timestamp: time.Now().Add(-ago)}
	}
	produce := func(cl *kgo.Client, all ...*kgo.Record) {
		t.Helper()
		require.NoError(t, cl.ProduceSync(t.Context(), all...).FirstErr())
	}
	admin, err := sarama.NewClusterAdminFromClient(native)
	require.NoError(t, err)
	commit := func(partition int32, offset int64) {
		t.Helper()
		_, err := admin.AlterConsumerGroupOffsets(group,
			map[string]map[int32]sarama.OffsetAndMetadata{
				topic: {partition: {Offset: offset, LeaderEpoch: -1}}}, nil)
		require.NoError(t, err)
	}
	want := func(what string, lag time.Duration) {
		t.Helper()
		s, err1 := kafkasarama.Lags(native, group, topic)
		f, err2 := kafkafranz.Lags(t.Context(), client, group, topic)
		for name, got := range map[string]map[string]time.Duration{"sarama": s, "franz-go": f} {
			require.NoError(t, errors.Join(err1, err2), "%s, with %s", what, name)
			require.Len(t, got, 1, "%s, with %s", what, name)
			assert.GreaterOrEqual(t, got[topic], lag, "%s, with %s", what, name)
			assert.LessOrEqual(t, got[topic], lag+min(lag, time.Minute), "%s, with %s", what, name)
		}
	}

	want("an empty topic", 0)
	produce(client, record(0, 5*time.Hour), record(0, 4*time.Hour), record(0, 3*time.Hour))
	produce(client, record(1, 2*time.Hour))
	want("nothing is committed", 5*time.Hour)
	commit(0, 1)
	want("in the midst of a batch", 4*time.Hour)
	commit(0, 3)
	want("of the other partition", 2*time.Hour)
	commit(1, 1)
	want("all is read", 0)

	// A transaction leaves a mark behind its messages. Nobody can read or commit this mark.
	marks := map[bool]int64{true: 4, false: 6}
	for _, committed := range []bool{true, false} {
		txn := newClient(kgo.TransactionalID(topic + map[bool]string{true: "-1",
			false: "-2"}[committed]))
		require.NoError(t, txn.BeginTransaction())
		produce(txn, record(0, time.Hour))
		require.NoError(t, txn.EndTransaction(t.Context(), kgo.TransactionEndTry(committed)))
		// The broker answers before the mark is there.
		eventually(t, 10*time.Second, func() (bool, string) {
			end, err := native.GetOffset(topic, 0, sarama.OffsetNewest)
			return err == nil && end == marks[committed]+1, fmt.Sprint("the log ends at ", end, err)
		})
		want("of a transaction", time.Hour)
		commit(0, marks[committed])
		want("a mark alone", 0)
	}
	produce(client, record(0, 30*time.Minute))
	want("behind a mark", 30*time.Minute)
	_, err = kafkafranz.Lags(t.Context(), client, group, topic, "nowhere")
	assert.Error(t, err, "a topic that there is not")
	assert.False(t, native.Closed(), "the client is closed")
}
