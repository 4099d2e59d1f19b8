package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
)

// kafkasegmentio reads Apache Kafka by itself: batches of all codecs, transactions that end in both
// ways, a log that begins late, and an offset that retention has deleted.
func TestSegmentioReadsLogsOfKafka(t *testing.T) {
	c := newConsumer(t, "log")
	topic := c.topics[0]
	createTopic(t, c.brokers, topic, 1, 1)
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.brokers...),
			kgo.DefaultProduceTopic(topic))...)
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	produce := func(cl *kgo.Client, prefix string, n int) (last int64) {
		records := make([]*kgo.Record, n)
		for i := range records {
			id := fmt.Sprint(prefix, i)
			records[i] = &kgo.Record{Key: []byte(id), Value: make([]byte, 100),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
		}
		require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
		return records[n-1].Offset
	}
	plain := client()
	deleteBelow(t, c.brokers, topic, produce(plain, "gone", 10)+1)
	for name, codec := range map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression()} {
		produce(client(kgo.ProducerBatchCompression(codec)), name, 50)
	}
	tx := client(kgo.TransactionalID(topic))
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort,
		kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, tx.BeginTransaction())
		produce(tx, fmt.Sprint("tx", i, end, "-"), 10)
		produce(plain, fmt.Sprint("between", i, "-"), 5)
		require.NoError(t, tx.EndTransaction(t.Context(), end))
	}
	last := produce(plain, "last", 1)

	var mu sync.Mutex
	var told []error
	run := func(until func() bool, change func(*kafkaadapter.Config)) {
		cfg := c.config()
		cfg.Attempts.RetryMax = 300 * time.Millisecond
		cfg.Observer.GroupError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}
		change(&cfg)
		s, err := c.membership().segmentio(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		assert.Eventually(t, until, 30*time.Second, 50*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
	}
	ran := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.runs)
	}
	const all = 4*50 + 2*10 + 5*5 + 1
	run(func() bool { return ran() == all }, func(*kafkaadapter.Config) {})
	assert.Empty(t, told)
	for id, n := range c.runs {
		assert.Equal(t, 1, n, id)
		assert.NotContains(t, id, "gone")
		assert.NotContains(t, id, fmt.Sprint(kgo.TryAbort, "-"))
	}

	deleteBelow(t, c.brokers, topic, produce(plain, "unread", 10)-4)
	run(func() bool { mu.Lock(); defer mu.Unlock(); return len(told) > 2 },
		func(*kafkaadapter.Config) {})
	require.ErrorContains(t, told[0], fmt.Sprint("offset ", last+1, ": the log does not have it"))
	assert.Equal(t, all, ran(), "nothing is read until somebody decides")
	run(func() bool { return ran() == all+5 }, func(c *kafkaadapter.Config) { c.Allow.Skip = true })
}
