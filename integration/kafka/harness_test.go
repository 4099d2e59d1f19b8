// Package kafka_test runs the Kafka adapter against brokers: an embedded one, and
// Apache Kafka under `make test`.
package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// embedded starts a broker in this process.
func embedded(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// clientConfig has timeouts short enough for a test to see a dead member.
func clientConfig() *sarama.Config {
	cfg := kafkaadapter.SafeConfig(sarama.NewConfig())
	cfg.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
	cfg.Consumer.Group.Heartbeat.Interval = 250 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Metadata.Retry.Backoff = 100 * time.Millisecond
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	return cfg
}

// createTopic makes a topic and removes it after the test.
func createTopic(t *testing.T, brokers []string, topic string, partitions int32, replicas int16) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.DeleteTopic(topic) })
}

// record is a message to produce.
type record struct {
	id        string
	partition int32
	key       string
	value     []byte
}

// produce sends the records in order and returns the id at every position.
func produce(t *testing.T, brokers []string, topic string, records []record) map[int32][]string {
	t.Helper()
	p, err := sarama.NewSyncProducer(brokers, clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	at := make(map[int32][]string)
	const batch = 500
	for len(records) > 0 {
		n := min(batch, len(records))
		msgs := make([]*sarama.ProducerMessage, n)
		for i, r := range records[:n] {
			msgs[i] = &sarama.ProducerMessage{
				Topic: topic, Partition: r.partition, Key: sarama.StringEncoder(r.key), Value: sarama.ByteEncoder(r.value),
				Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(r.id)}},
			}
		}
		if err := p.SendMessages(msgs); err != nil {
			t.Fatal(err)
		}
		for i, m := range msgs {
			ids := at[m.Partition]
			if int64(len(ids)) != m.Offset {
				t.Fatalf("produced to %d@%d, expected offset %d", m.Partition, m.Offset, len(ids))
			}
			at[m.Partition] = append(ids, records[i].id)
		}
		records = records[n:]
	}
	return at
}

// member is one consumer of a group that can leave, or crash.
type member struct {
	dialer *cutDialer
	store  *mortal
	group  sarama.ConsumerGroup
	dedup  *dedup.Deduper
	cancel context.CancelFunc
	done   chan error
}

// start makes a member of the group over its own view of the store. wrap may put
// something between sarama and the adapter.
func start(t *testing.T, brokers []string, groupID, topic string, store dedup.Store, handler kafkaadapter.Handler,
	observer kafkaadapter.Observer, wrap func(sarama.ConsumerGroup) sarama.ConsumerGroup,
) *member {
	t.Helper()
	m := &member{dialer: &cutDialer{conns: map[net.Conn]bool{}}, store: &mortal{Store: store}, done: make(chan error, 1)}
	var err error
	m.dedup, err = dedup.New(m.store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second, Hold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg := clientConfig()
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, m.dialer
	a, err := kafkaadapter.New(kafkaadapter.Config{
		Deduper: m.dedup, Handler: handler, Observer: observer, Drain: time.Second,
		CommitEvery: 50 * time.Millisecond, CommitCount: 200, RetryBase: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.CheckConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if m.group, err = sarama.NewConsumerGroup(brokers, groupID, cfg); err != nil {
		t.Fatal(err)
	}
	group := m.group
	if wrap != nil {
		group = wrap(group)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	m.cancel = cancel
	go func() { m.done <- a.Run(ctx, group, []string{topic}) }()
	return m
}

// leave stops the member as a deployment would.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.cancel()
	if err := <-m.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	_ = m.group.Close()
}

// crash cuts the member off from broker and store, in the middle of whatever it does.
// It cannot leave the group, complete or release anything.
func (m *member) crash() {
	m.store.kill()
	m.dialer.cut()
	m.cancel()
	go func() {
		<-m.done
		_ = m.group.Close()
	}()
}

// cutDialer dials until it is cut.
type cutDialer struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

var errCut = errors.New("connection cut")

// Dial implements golang.org/x/net/proxy.Dialer.
func (d *cutDialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		_ = conn.Close()
		return nil, errCut
	}
	d.conns[conn] = true
	return conn, nil
}

func (d *cutDialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	for conn := range d.conns {
		_ = conn.Close()
	}
}

// mortal is a store that a dead process cannot reach any more.
type mortal struct {
	dedup.Store
	mu   sync.RWMutex
	dead bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *mortal) alive() (func(), bool) {
	m.mu.RLock()
	return m.mu.RUnlock, !m.dead
}

func dead(n int) []dedup.Answer {
	answers := make([]dedup.Answer, n)
	for i := range answers {
		answers[i].Err = errDead
	}
	return answers
}

func (m *mortal) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	done, ok := m.alive()
	defer done()
	if !ok {
		return dead(len(reqs))
	}
	return m.Store.Claim(ctx, reqs)
}

func (m *mortal) Renew(ctx context.Context, changes []dedup.Change) []dedup.Answer {
	done, ok := m.alive()
	defer done()
	if !ok {
		return dead(len(changes))
	}
	return m.Store.Renew(ctx, changes)
}

func (m *mortal) Finish(ctx context.Context, changes []dedup.Change) []dedup.Answer {
	done, ok := m.alive()
	defer done()
	if !ok {
		return dead(len(changes))
	}
	return m.Store.Finish(ctx, changes)
}

// eventually polls until cond holds, and fails with what it says otherwise.
func eventually(t *testing.T, limit time.Duration, cond func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(limit)
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
			t.Fatalf("not after %v: %s", limit, state)
		}
	}
}

func partitionsOf(n int, i int) int32 { return int32(i % n) } //nolint:gosec // small

func idOf(i int) string { return fmt.Sprintf("evt_%06d", i) }
