package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/txn"
)

// txnFixture is a broker with an input topic, an output topic of as many partitions, and a topic
// for dead letters. The output of an input goes to the output partition of the same number and
// names the input's position.
type txnFixture struct {
	t             *testing.T
	brokers       []string
	in, out, dead string
	group         string
	partitions    int32
	sent          map[int32][]string
	reads         int

	mu     sync.Mutex
	failed map[string]int // runs, by error
}

// newTxnFixture makes the topics; prefix keeps tests on one real broker apart.
func newTxnFixture(t *testing.T, brokers []string, prefix string, partitions int32) *txnFixture {
	t.Helper()
	s := &txnFixture{
		t: t, brokers: brokers, partitions: partitions, sent: map[int32][]string{},
		failed: map[string]int{},
		in:     prefix + "in", out: prefix + "out", dead: prefix + "dead",
		group: prefix + "streamed",
	}
	for _, topic := range []string{s.in, s.out, s.dead} {
		createTopic(t, brokers, topic, partitions, 1)
	}
	return s
}

// produce spreads n inputs over the partitions.
func (s *txnFixture) produce(n int) {
	s.t.Helper()
	var records []record
	for i := range n {
		records = append(records, record{id: idOf(i), partition: partitionsOf(int(s.partitions), i),
			key: idOf(i), value: []byte(idOf(i))})
	}
	produceAt(s.t, s.brokers, s.in, s.sent, records)
}

// stream returns the output of an input.
func (s *txnFixture) stream(m *sarama.ConsumerMessage) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: s.out, Partition: m.Partition,
		Value: sarama.StringEncoder(fmt.Sprintf("%d@%d", m.Partition, m.Offset))}
}

// streamBatch returns one output per input, or one output that names all inputs.
func (s *txnFixture) streamBatch(_ context.Context,
	batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
	var all []*sarama.ProducerMessage
	for _, m := range batch {
		all = append(all, s.stream(m))
	}
	if oneOutputPerBatch {
		var names []string
		for _, m := range all {
			names = append(names, string(m.Value.(sarama.StringEncoder)))
		}
		all = all[:1]
		all[0].Value = sarama.StringEncoder(strings.Join(names, " "))
	}
	return all, nil
}

// processor is one member of the group.
type processor struct {
	net, producerNet *tapDialer // of the group's client and of the producers'
	group            sarama.ConsumerGroup
	cancel           context.CancelFunc
	done             chan error
}

// processorConfig changes what join makes.
type processorConfig struct {
	txn         *txn.Config
	consumer    *sarama.Config
	producerNet *tapDialer
}

// join starts a member with short timeouts.
func (s *txnFixture) join(change ...func(*processorConfig)) *processor {
	s.t.Helper()
	m := &processor{net: newTap(), producerNet: newTap(), done: make(chan error, 1)}
	consumer, producers := clientConfig(), clientConfig()
	for cfg, tap := range map[*sarama.Config]*tapDialer{consumer: m.net, producers: m.producerNet} {
		cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, tap
		cfg.Producer.Transaction.Retry.Backoff = 10 * time.Millisecond
		cfg.Producer.Retry.Backoff = 10 * time.Millisecond
		cfg.Metadata.Retry.Backoff = 20 * time.Millisecond
	}
	mc := processorConfig{consumer: consumer, producerNet: m.producerNet, txn: &txn.Config{
		Brokers: s.brokers, Client: producers, Group: s.group, TransactionTimeout: time.Second,
		Drain:    time.Second,
		BatchMax: 20, BatchWait: time.Millisecond, RetryBase: 5 * time.Millisecond,
		RetryMax: 100 * time.Millisecond, Handler: s.streamBatch,
		Observer: txn.Observer{Failed: func(_ string, _ int32, err error) { s.note(err) }},
	}}
	for _, f := range change {
		f(&mc)
	}
	p, err := txn.New(*mc.txn)
	require.NoError(s.t, err)
	require.NoError(s.t, p.CheckConfig(consumer))
	m.group, err = sarama.NewConsumerGroup(s.brokers, s.group, consumer)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	m.cancel = cancel
	go func() { m.done <- p.Run(ctx, m.group, []string{s.in}) }()
	return m
}

func (s *txnFixture) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _, _ := strings.Cut(err.Error(), "\n")
	s.failed[text]++
}

// failures is what made runs fail, and how often.
func (s *txnFixture) failures() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, text := range slices.Sorted(maps.Keys(s.failed)) {
		all = append(all, fmt.Sprintf("%d x %s", s.failed[text], text))
	}
	return strings.Join(all, "; ")
}

// leave stops the member as a deployment would.
func (m *processor) leave(t *testing.T) {
	t.Helper()
	m.cancel()
	assert.NoError(t, <-m.done, "Run")
	_ = m.group.Close()
}

// crash cuts the member off in the middle of whatever it does; its goroutines live on and
// reach nobody.
func (m *processor) crash() {
	m.net.kill()
	m.producerNet.kill()
	m.cancel()
	go func() {
		<-m.done
		_ = m.group.Close()
	}()
}

// positions is what the group has committed.
func (s *txnFixture) positions() (map[int32]int64, error) {
	admin, err := sarama.NewClusterAdmin(s.brokers, clientConfig())
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close() }()
	var partitions []int32
	for p := range s.partitions {
		partitions = append(partitions, p)
	}
	offsets, err := admin.ListConsumerGroupOffsets(s.group, map[string][]int32{s.in: partitions})
	if err != nil {
		return nil, err
	}
	at := map[int32]int64{}
	for _, p := range partitions {
		block := offsets.GetBlock(s.in, p)
		if block == nil || block.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("partition %d: %+v", p, block)
		}
		at[p] = max(block.Offset, 0)
	}
	return at, nil
}

// wantCommittedToEnd waits until the group has processed all that was produced.
func (s *txnFixture) wantCommittedToEnd(limit time.Duration) {
	s.t.Helper()
	eventually(s.t, limit, func() (bool, string) {
		at, err := s.positions()
		for p, ids := range s.sent {
			if err != nil || at[p] != int64(len(ids)) {
				return false, fmt.Sprintf("%v, partition %d is committed to %d of %d; %s",
					err, p, at[p], len(ids), s.failures())
			}
		}
		return true, ""
	})
}

// wantCommitted waits until n inputs are committed.
func (s *txnFixture) wantCommitted(n int64, limit time.Duration) {
	s.t.Helper()
	eventually(s.t, limit, func() (bool, string) {
		at, err := s.positions()
		total := int64(0)
		for _, offset := range at {
			total += offset
		}
		return err == nil && total >= n, fmt.Sprint(at, err, s.failures())
	})
}

// wantOutputOnce requires that a read_committed reader sees the output of every input below the
// committed offsets once, in order, and nothing else. No member may be at work.
func (s *txnFixture) wantOutputOnce() {
	s.t.Helper()
	outputs := s.read(s.out)
	at, err := s.positions()
	require.NoError(s.t, err)
	for p := range s.partitions {
		var want []string
		for offset := range at[p] {
			want = append(want, fmt.Sprintf("%d@%d", p, offset))
		}
		got := outputs[p]
		assert.True(s.t, slices.Equal(got, want),
			"partition %d is committed to %d and has %d outputs: %s", p, at[p], len(got),
			difference(got, want))
	}
}

// difference says what is lost, twice or out of place.
func difference(got, want []string) string {
	count := map[string]int{}
	for _, v := range got {
		count[v]++
	}
	var odd []string
	for _, v := range want {
		if count[v] != 1 {
			odd = append(odd, fmt.Sprintf("%s: %d times", v, count[v]))
		}
		delete(count, v)
	}
	for v := range count {
		odd = append(odd, v+": not committed")
	}
	if odd == nil {
		return "out of order"
	}
	return fmt.Sprintf("%d wrong, %s", len(odd), strings.Join(odd[:min(8, len(odd))], ", "))
}

// read returns the committed messages of a topic. It first sends one message of its own to the end
// of each partition. A reader sees this message only after every transaction ahead of it has ended,
// so a transaction that hangs fails the test.
func (s *txnFixture) read(topic string) map[int32][]string {
	s.t.Helper()
	const sentinel = "last-"
	s.reads++
	last := fmt.Sprint(sentinel, s.reads)
	for p := range s.partitions {
		producer, err := sarama.NewSyncProducer(s.brokers, clientConfig())
		require.NoError(s.t, err)
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: p,
			Value: sarama.StringEncoder(last)})
		_ = producer.Close()
		require.NoError(s.t, err)
	}
	reader, err := sarama.NewConsumer(s.brokers, clientConfig())
	require.NoError(s.t, err)
	defer func() { _ = reader.Close() }()
	all := map[int32][]string{}
	deadline := time.After(20 * time.Second)
	for p := range s.partitions {
		pc, err := reader.ConsumePartition(topic, p, sarama.OffsetOldest)
		require.NoError(s.t, err)
		for value := ""; value != last; {
			select {
			case m := <-pc.Messages():
				if value = string(m.Value); !strings.HasPrefix(value, sentinel) {
					all[p] = append(all[p], strings.Fields(value)...)
				}
			case <-deadline:
				s.t.Fatalf("partition %d of %s: a transaction hangs; %d messages so far",
					p, topic, len(all[p]))
			}
		}
		_ = pc.Close()
	}
	return all
}
