package work

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// BenchmarkEngine takes new messages of four partitions through the engine of the drivers and the
// Deduper, without a client of Kafka and over a store that costs nothing. CPU is that of the
// process, a fifth of which makes the messages.
func BenchmarkEngine(b *testing.B) {
	const partitions = 4
	d, err := dedup.New(new(nullStore),
		dedup.Config{Namespace: "bench", Window: peer.Window, LeaseTTL: peer.Lease})
	require.NoError(b, err)
	perPartition := (b.N + partitions - 1) / partitions
	var left atomic.Int64
	left.Store(int64(partitions * perPartition))
	over := make(chan struct{})
	handle := func(context.Context, *kafkaadapter.Message) error {
		if left.Add(-1) == 0 {
			close(over)
		}
		return nil
	}
	e, err := kafkadriver.New("bench", "group",
		kafkaadapter.Config{Deduper: d, Handler: handle})
	require.NoError(b, err)
	committer, err := e.NewCommitter(func(string, int32, int64) {}, func() {}, nil)
	require.NoError(b, err)
	committer.Start()
	b.ReportAllocs()
	cpu := harness.ProcessCPU()
	var all sync.WaitGroup
	for n := range int32(partitions) {
		p, err := e.Assign(kafkadriver.Assignment{Topic: "t", Partition: n, Generation: 1,
			Context: b.Context(), Committer: committer, Pause: func(bool) {}, Halt: func() {},
			LogEnd: func() int64 { return 0 }})
		require.NoError(b, err)
		require.NoError(b, p.Start())
		all.Go(func() {
			for at := 0; at < perPartition; at += Typical {
				messages := newMessages(n, at, min(Typical, perPartition-at))
				if err := p.Take(messages); err != nil {
					b.Error(err)
				}
			}
		})
		defer func() { require.NoError(b, p.End()) }()
	}
	all.Wait()
	<-over
	b.ReportMetric(float64(harness.ProcessCPU()-cpu)/float64(b.N), "cpu-ns/msg")
}

// newMessages makes messages as sarama and its driver do.
func newMessages(partition int32, from, n int) []kafkaadapter.Message {
	raw, messages := make([]sarama.ConsumerMessage, n), make([]kafkaadapter.Message, n)
	value := make([]byte, 100)
	for i := range messages {
		at := int64(from + i)
		id := strconv.AppendInt(strconv.AppendInt(nil, int64(partition), 10), 1<<40+at, 36)
		raw[i] = sarama.ConsumerMessage{Topic: "t", Partition: partition, Offset: at, Key: id,
			Value:   value,
			Headers: []*sarama.RecordHeader{{Key: []byte("message-id"), Value: id}}}
		messages[i] = *kafkasarama.Message(&raw[i])
	}
	return messages
}
