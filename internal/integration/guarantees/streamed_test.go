package guarantees_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/kafkaadapter/txn"
)

var streamedRow = row{
	holds: map[string]func(*testing.T){
		"the output of each input offset once, for read_committed readers": streamedOnce,
	},
	doubles: map[string]func(*testing.T){
		"never within one cluster": streamedCrash,
		"a message that the upstream producer sends twice has two offsets": streamedTwice,
	},
}

// broker runs in this process. It has an input topic and an output topic of one partition each.
type broker struct {
	*kfake.Cluster

	t     *testing.T
	reads int
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(200*time.Millisecond), kfake.SeedTopics(1, "in", "out"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &broker{Cluster: c, t: t}
}

func kafkaConfig() *sarama.Config {
	cfg := kafkasarama.SafeConfig(sarama.NewConfig())
	cfg.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
	cfg.Consumer.Group.Heartbeat.Interval = 250 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	cfg.Net.ReadTimeout = cfg.Consumer.Group.Rebalance.Timeout + 2*time.Second
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	return cfg
}

// produce sends values to a topic, as a producer upstream does.
func (s *broker) produce(topic string, values ...string) {
	s.t.Helper()
	p, err := sarama.NewSyncProducer(s.ListenAddrs(), kafkaConfig())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, p.Close()) }()
	for _, v := range values {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic,
			Value: sarama.StringEncoder(v)})
		require.NoError(s.t, err)
	}
}

// plug is a dialer whose connections can all be cut at once and for good, as if its process had
// died.
type plug struct {
	mu    sync.Mutex
	conns []net.Conn
	gone  bool
}

// Dial implements proxy.Dialer.
func (p *plug) Dial(network, addr string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, net.ErrClosed
	}
	conn, err := net.Dial(network, addr)
	if err == nil {
		p.conns = append(p.conns, conn)
	}
	return conn, err
}

func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

// member copies the input to the output in transactions. stop leaves the group. After a crash stop
// waits until the rest of the process has ended.
func (s *broker) member(handled func(p *plug, values []string)) (stop func()) {
	s.t.Helper()
	p := &plug{}
	consumer, producers := kafkaConfig(), kafkaConfig()
	for _, cfg := range []*sarama.Config{consumer, producers} {
		cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, p
		cfg.Producer.Transaction.Retry.Backoff, cfg.Metadata.Retry.Backoff = 10*time.Millisecond,
			20*time.Millisecond
	}
	streamer, err := txn.New(txn.Config{
		Brokers: s.ListenAddrs(), Client: producers, Group: "g", TransactionTimeout: time.Second,
		Drain:    time.Second,
		BatchMax: 5, BatchWait: time.Millisecond, RetryBase: 5 * time.Millisecond,
		RetryMax: 100 * time.Millisecond,
		Handler: func(_ context.Context,
			batch []*sarama.ConsumerMessage) (out []*sarama.ProducerMessage, _ error) {
			var values []string
			for _, m := range batch {
				values = append(values, string(m.Value))
				out = append(out, &sarama.ProducerMessage{Topic: "out",
					Value: sarama.StringEncoder(m.Value)})
			}
			if handled != nil {
				handled(p, values)
			}
			return out, nil
		},
	})
	require.NoError(s.t, err)
	group, err := sarama.NewConsumerGroup(s.ListenAddrs(), "g", consumer)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		// the error of a process that has died does not matter
		_ = streamer.Run(ctx, group, []string{"in"})
	}()
	return func() {
		cancel()
		<-done
		_ = group.Close()
	}
}

// read returns the values that a reader sees in the output, up to a message of its own.
func (s *broker) read(isolation sarama.IsolationLevel) (values []string) {
	s.t.Helper()
	s.produce("out", "last")
	cfg := kafkaConfig()
	cfg.Consumer.IsolationLevel = isolation
	reader, err := sarama.NewConsumer(s.ListenAddrs(), cfg)
	require.NoError(s.t, err)
	defer func() { _ = reader.Close() }()
	pc, err := reader.ConsumePartition("out", 0, sarama.OffsetOldest)
	require.NoError(s.t, err)
	defer func() { _ = pc.Close() }()
	last := 0
	deadline := time.After(30 * time.Second)
	s.reads++
	for last < s.reads {
		select {
		case m := <-pc.Messages():
			if string(m.Value) == "last" {
				last++
			} else {
				values = append(values, string(m.Value))
			}
		case <-deadline:
			s.t.Fatalf("a transaction is stuck; %d messages so far", len(values))
		}
	}
	return values
}

// through waits until all of the input is committed.
func (s *broker) through(n int64) {
	s.t.Helper()
	admin, err := sarama.NewClusterAdmin(s.ListenAddrs(), kafkaConfig())
	require.NoError(s.t, err)
	defer func() { _ = admin.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for {
		offsets, err := admin.ListConsumerGroupOffsets("g", map[string][]int32{"in": {0}})
		if err == nil && offsets.GetBlock("in", 0) != nil && offsets.GetBlock("in", 0).Offset >= n {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("not all of the input is committed: %v, %+v", err, offsets)
		}
	}
}

func inputs(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprint("m", i))
	}
	return values
}

// streamedOnce: transactions fail at their ends and run again. A reader of committed messages sees
// the output of each input once; any other reader also sees the output of aborted runs.
func streamedOnce(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	n := 0
	h := s.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.TransactionAbortable,
		Count: 3, When: func(kmsg.Request) bool {
			n++
			return n%3 == 0
		}})
	all := inputs(60)
	s.produce("in", all...)
	stop := s.member(nil)
	s.through(60)
	stop()
	assert.Equal(t, 3, h.Hits(), "faults")
	got := s.read(sarama.ReadCommitted)
	assert.Equal(t, all, got, "committed: %s", strings.Join(got, " "))
	assert.Greater(t, len(s.read(sarama.ReadUncommitted)), len(all),
		"uncommitted: messages, none of them of an aborted run")
}

// streamedCrash: a process dies during its work, and its successor continues from the committed
// offsets.
func streamedCrash(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	all := inputs(60)
	s.produce("in", all...)
	died := make(chan struct{})
	var once sync.Once
	left := s.member(func(p *plug, values []string) {
		if slices.Contains(values, "m31") {
			p.pull()
			once.Do(func() { close(died) })
		}
	})
	select {
	case <-died:
	case <-time.After(30 * time.Second):
		t.Fatal("the crash never happened")
	}
	again := 0
	stop := s.member(func(_ *plug, values []string) {
		if slices.Contains(values, "m31") {
			again++
		}
	})
	s.through(60)
	stop()
	left()
	assert.NotZero(t, again, "the handler has not run again: nothing was lost by the crash")
	got := s.read(sarama.ReadCommitted)
	assert.Equal(t, all, got, "committed: %s", strings.Join(got, " "))
}

// streamedTwice: for Kafka two offsets are two messages.
func streamedTwice(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	s.produce("in", "a", "b", "b", "c")
	stop := s.member(nil)
	s.through(4)
	stop()
	assert.Equal(t, "a b b c", strings.Join(s.read(sarama.ReadCommitted), " "), "committed")
}
