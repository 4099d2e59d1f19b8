// Package kafka_test runs the Kafka adapter against brokers: an embedded one, and
// Apache Kafka under `make test`.
package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// embedded starts three brokers in this process.
func embedded(t *testing.T) *kfake.Cluster { return embeddedNodes(t, 3) }

func embeddedNodes(t *testing.T, n int) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(n), kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// clientConfig has timeouts short enough for a test to see a dead member, and retries
// that do not wait much longer than what they wait for: a rebalance that meets another
// one sleeps through Rebalance.Retry.Backoff, two seconds by default.
func clientConfig() *sarama.Config {
	cfg := kafkaadapter.SafeConfig(sarama.NewConfig())
	cfg.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
	cfg.Consumer.Group.Heartbeat.Interval = 250 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
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

func (r record) message(topic string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Partition: r.partition, Key: sarama.StringEncoder(r.key), Value: sarama.ByteEncoder(r.value),
		Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(r.id)}},
	}
}

// produce sends the records in order to an empty topic and returns the id at every
// position.
func produce(t *testing.T, brokers []string, topic string, records []record) map[int32][]string {
	t.Helper()
	at := make(map[int32][]string)
	produceAt(t, brokers, topic, at, records)
	return at
}

// produceAt sends the records in order behind those that are in at, and adds them.
func produceAt(t *testing.T, brokers []string, topic string, at map[int32][]string, records []record) {
	t.Helper()
	p, err := sarama.NewSyncProducer(brokers, clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	const batch = 500
	for len(records) > 0 {
		n := min(batch, len(records))
		msgs := make([]*sarama.ProducerMessage, n)
		for i, r := range records[:n] {
			msgs[i] = r.message(topic)
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
}

// member is one consumer of a group that can leave, or crash.
type member struct {
	dialer *cutDialer
	store  *mortal
	group  sarama.ConsumerGroup
	dedup  *dedup.Deduper
	cancel context.CancelFunc
	done   chan error

	began, running atomic.Int64 // handlers
	alarm          atomic.Pointer[alarm]
}

// alarm goes off when so many handlers have begun.
type alarm struct {
	at   int64
	once sync.Once
	off  chan struct{}
}

// after returns a channel that is closed when n more handlers have begun, by the last of
// them: it is running then.
func (m *member) after(n int64) <-chan struct{} {
	a := &alarm{at: m.began.Load() + n, off: make(chan struct{})}
	m.alarm.Store(a)
	return a.off
}

// memberConfig is what a member needs to know. Broker addresses, group, topic, store and
// handler are required.
type memberConfig struct {
	brokers  []string
	group    string
	topic    string
	store    dedup.Store // it gets a view of its own
	handler  kafkaadapter.Handler
	observer kafkaadapter.Observer
	adapter  func(*kafkaadapter.Config)                      // changes the adapter's settings
	client   func(*sarama.Config)                            // changes the client's
	wrap     func(sarama.ConsumerGroup) sarama.ConsumerGroup // between sarama and the adapter
}

// start makes a member of the group.
func start(t *testing.T, mc memberConfig) *member {
	t.Helper()
	m := &member{dialer: &cutDialer{conns: map[net.Conn]bool{}}, store: &mortal{Store: mc.store}, done: make(chan error, 1)}
	var err error
	m.dedup, err = dedup.New(m.store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second, Hold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg := kafkaadapter.Config{
		Deduper: m.dedup, Handler: m.count(mc.handler), Observer: mc.observer, Drain: time.Second,
		CommitEvery: 50 * time.Millisecond, CommitCount: 200, RetryBase: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond,
	}
	if mc.adapter != nil {
		mc.adapter(&cfg)
	}
	a, err := kafkaadapter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := clientConfig()
	client.Net.Proxy.Enable, client.Net.Proxy.Dialer = true, m.dialer
	if mc.client != nil {
		mc.client(client)
	}
	if err := a.CheckConfig(client); err != nil {
		t.Fatal(err)
	}
	if m.group, err = sarama.NewConsumerGroup(mc.brokers, mc.group, client); err != nil {
		t.Fatal(err)
	}
	group := m.group
	if mc.wrap != nil {
		group = mc.wrap(group)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	m.cancel = cancel
	go func() { m.done <- a.Run(ctx, group, []string{mc.topic}) }()
	return m
}

// count notes how many handlers began and how many are running.
func (m *member) count(h kafkaadapter.Handler) kafkaadapter.Handler {
	return func(ctx context.Context, msg *kafkaadapter.Message) error {
		m.running.Add(1)
		defer m.running.Add(-1)
		n := m.began.Add(1)
		if a := m.alarm.Load(); a != nil && n >= a.at {
			a.once.Do(func() { close(a.off) })
		}
		return h(ctx, msg)
	}
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

// crashAtWork crashes the member as soon as n more handlers have begun, and tells how
// many of them were running then.
func (m *member) crashAtWork(n int64) <-chan int64 {
	working := m.after(n)
	crashed := make(chan int64, 1)
	go func() {
		<-working
		running := m.running.Load()
		m.crash()
		crashed <- running
	}()
	return crashed
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

func partitionsOf(n int, i int) int32 { return int32(i % n) } // small

func idOf(i int) string { return fmt.Sprintf("evt_%06d", i) }
