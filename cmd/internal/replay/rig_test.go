package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/redisadapter"
)

const (
	orders = "orders"
	dead   = "orders.dead"
	window = time.Hour
)

// scoped is where the consumer has its records.
var scoped = dedup.WithScope(kafkaadapter.ScopeOf("consumer", orders))

var errBroken = errors.New("cannot be charged")

// rig is a broker, a Redis, and the consumer's Deduper.
type rig struct {
	t        *testing.T
	cluster  *kfake.Cluster
	config   func() *sarama.Config // of the test's own clients
	redis    *miniredis.Miniredis
	dedup    *dedup.Deduper
	producer sarama.SyncProducer
	park     func(context.Context, *kafkaadapter.Message, error) error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, groupConfig)
}

// newRigOn is a rig on a broker that wants more than the usual.
func newRigOn(t *testing.T, config func() *sarama.Config, opts ...kfake.Opt) *rig {
	t.Helper()
	opts = append(opts, kfake.NumBrokers(1), kfake.SeedTopics(1, orders, dead),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := &rig{t: t, cluster: cluster, config: config, redis: miniredis.RunT(t)}
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{OnFinding: func(preflight.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	r.dedup, err = dedup.New(store,
		dedup.Config{Namespace: "payments", Window: window, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r.producer, err = sarama.NewSyncProducer(cluster.ListenAddrs(), r.config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.producer.Close() })
	r.park, err = kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: producerOf(t, r.producer),
		Topic:    func(*kafkaadapter.Message) string { return dead },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// producerOf is a producer of dead letters.
func producerOf(t *testing.T, p sarama.SyncProducer) kafkaadapter.Producer {
	t.Helper()
	out, err := kafkasarama.Producer(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// groupConfig is the consumer's, with the hurry of a test.
func groupConfig() *sarama.Config {
	c := kafkasarama.SafeConfig(nil)
	c.Consumer.MaxWaitTime = 20 * time.Millisecond
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 5*time.Second,
		200*time.Millisecond
	c.Producer.RequiredAcks, c.Producer.Return.Successes = sarama.WaitForAll, true
	return c
}

// produce sends n messages with the ids id-0, id-1, ...
func (r *rig) produce(n int) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprint("id-", i)
		_, _, err := r.producer.SendMessage(&sarama.ProducerMessage{
			Topic: orders, Key: sarama.StringEncoder(id),
			Value:   sarama.StringEncoder("value of " + id),
			Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(id)}},
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// letters parks n messages that have failed for good, without a consumer.
func (r *rig) letters(n int) {
	r.t.Helper()
	for i := range n {
		r.fail(fmt.Sprint("id-", i))
		r.letter(fmt.Sprint("id-", i), errBroken)
	}
}

// fail records an id as failed for good.
func (r *rig) fail(id string) {
	r.t.Helper()
	_, err := dedup.Do(r.t.Context(), r.dedup, id, func(context.Context) (struct{}, error) {
		return struct{}{}, dedup.Permanent(errBroken)
	}, scoped)
	if !dedup.IsPermanent(err) {
		r.t.Fatal(err)
	}
}

// letter parks a message.
func (r *rig) letter(id string, reason error) {
	r.t.Helper()
	m := &kafkaadapter.Message{ID: id, Scope: kafkaadapter.ScopeOf("consumer", orders), Attempt: 3,
		Topic: orders, Offset: 7, Key: []byte(id), Value: []byte("value of " + id),
		Timestamp: time.Now()}
	if err := r.park(r.t.Context(), m, reason); err != nil {
		r.t.Fatal(err)
	}
}

// replay runs the command.
func (r *rig) replay(wantCode int, args ...string) (out string) {
	r.t.Helper()
	var buffer bytes.Buffer
	return r.replayTo(r.t.Context(), &buffer, wantCode, args...)
}

type output interface {
	Write(p []byte) (int, error)
	String() string
}

func (r *rig) replayTo(ctx context.Context, out output, wantCode int, args ...string) string {
	r.t.Helper()
	var errOut bytes.Buffer
	r.main(ctx, out, &errOut, wantCode, args...)
	return out.String() + errOut.String()
}

func (r *rig) main(ctx context.Context, out, errOut io.Writer, wantCode int, args ...string) {
	r.t.Helper()
	args = append([]string{"--brokers", strings.Join(r.cluster.ListenAddrs(), ","), "--topic",
		dead, "--redis", "redis://" + r.redis.Addr(),
		"--namespace", "payments", "--window", window.String()}, args...)
	if code := execute(ctx, args, out, errOut); code != wantCode {
		r.t.Errorf("onceward replay %q: exit code %d, want %d\n%v%v", args[10:], code, wantCode,
			out, errOut)
	}
}

// wantIn looks for texts in an output.
func (r *rig) wantIn(out string, texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			r.t.Errorf("not in the output: %s\n%s", text, out)
		}
	}
}

// ids are those of the messages of a topic, in order.
func (r *rig) ids(topic string) []string {
	r.t.Helper()
	client, err := sarama.NewClient(r.cluster.ListenAddrs(), r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		r.t.Fatal(err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	var ids []string
	for int64(len(ids)) < end {
		select {
		case m := <-p.Messages():
			id, _ := kafkaadapter.DefaultID()(kafkasarama.Message(m))
			ids = append(ids, id)
		case <-time.After(10 * time.Second):
			r.t.Fatalf("%d of %d messages", len(ids), end)
		}
	}
	return ids
}

// committed is what the replay's group has committed; -1 for nothing.
func (r *rig) committed() (int64, string) {
	if info := r.cluster.GroupInfo(DefaultGroup); info != nil {
		if c, ok := info.Commits[dead][0]; ok {
			return c.Offset, c.Metadata
		}
	}
	return -1, ""
}

func (r *rig) wantCommitted(offset int64, metadata string) {
	r.t.Helper()
	if at, text := r.committed(); at != offset || text != metadata {
		r.t.Errorf("committed %d %q, want %d %q", at, text, offset, metadata)
	}
}

// consumer is a member that parks what fails, and counts effects.
type consumer struct {
	mu      sync.Mutex
	broken  bool
	effects map[string]int
	stop    func()
}

// consume starts a consumer.
func (r *rig) consume(broken bool) *consumer {
	r.t.Helper()
	c := &consumer{broken: broken, effects: map[string]int{}}
	client, err := sarama.NewClient(r.cluster.ListenAddrs(), groupConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = client.Close() })
	a, err := kafkasarama.New(client, "consumer", kafkaadapter.Config{
		Deduper: r.dedup, Park: r.park, Handler: c.handle,
		Tuning: kafkaadapter.Tuning{CommitEvery: 20 * time.Millisecond, Drain: time.Second},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(r.cluster.ListenAddrs(), "consumer", groupConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, group, []string{orders}) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
		_ = group.Close()
	})
	r.t.Cleanup(c.stop)
	return c
}

func (c *consumer) handle(_ context.Context, m *kafkaadapter.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return dedup.Permanent(errBroken)
	}
	c.effects[m.ID]++
	return nil
}

// wantConsumed waits until the consumer has committed n messages.
func (r *rig) wantConsumed(n int64) {
	r.t.Helper()
	r.eventually(func() (bool, string) {
		var at int64
		if info := r.cluster.GroupInfo("consumer"); info != nil {
			at = info.Commits[orders][0].Offset
		}
		return at == n, fmt.Sprintf("%d of %d messages are committed", at, n)
	})
}

// eventually polls until cond holds, and fails with what it says otherwise.
func (r *rig) eventually(cond func() (bool, string)) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			r.t.Fatal(state)
		}
	}
}

func (c *consumer) wantEffects(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.effects) != n {
		t.Errorf("effects of %d ids, want %d: %v", len(c.effects), n, c.effects)
	}
	for id, times := range c.effects {
		if times != 1 {
			t.Errorf("%s has happened %d times", id, times)
		}
	}
}
