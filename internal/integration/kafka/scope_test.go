package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

// scopeRun has topics of its own on Apache Kafka, and a store in Redis. Its consumers configure no
// scope.
type scopeRun struct {
	t        *testing.T
	brokers  []string
	dedup    *dedup.Deduper
	producer sarama.SyncProducer
	name     string
	sent     map[string]int64 // to each topic

	mu      sync.Mutex
	effects map[string]int    // by group, topic and id
	keys    map[string]string // DownstreamKey by group and id
	causes  map[driver.Cause]int
}

func newScopeRun(t *testing.T, topics ...string) *scopeRun {
	t.Helper()
	r := &scopeRun{
		t: t, brokers: servertest.Kafka(t), name: servertest.Prefix(t), sent: map[string]int64{},
		effects: map[string]int{}, keys: map[string]string{}, causes: map[driver.Cause]int{},
	}
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t),
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: r.name, OnFinding: func(preflight.Finding) {}})
	require.NoError(t, err)
	r.dedup, err = dedup.New(store,
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: 10 * time.Second,
			Observer: dedup.Observer{
				Claimed: func(e dedup.Event) {
					r.mu.Lock()
					defer r.mu.Unlock()
					if e.Outcome == dedup.Duplicate {
						r.causes[e.Cause]++
					}
				},
			}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.dedup.Close(context.Background()) })
	for _, topic := range topics {
		createTopic(t, r.brokers, r.topic(topic), 1, 1)
	}
	r.producer, err = sarama.NewSyncProducer(r.brokers, clientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.producer.Close() })
	return r
}

func (r *scopeRun) topic(name string) string { return r.name + "-" + name }

// send produces the ids m0, m1, ... to a topic.
func (r *scopeRun) send(topic string, n int, headers ...sarama.RecordHeader) {
	r.t.Helper()
	for i := range n {
		id := sarama.RecordHeader{Key: []byte("message-id"), Value: fmt.Append(nil, "m", i)}
		_, _, err := r.producer.SendMessage(&sarama.ProducerMessage{
			Topic: r.topic(topic), Value: sarama.StringEncoder(topic),
			Headers: append([]sarama.RecordHeader{id}, headers...),
		})
		require.NoError(r.t, err)
		r.sent[topic]++
	}
}

// scopeConsumer is what a test configures of a consumer, whatever its client.
type scopeConsumer struct {
	group     string
	topics    []string
	fails     bool
	attempts  int
	park      string // where letters go; empty: nowhere
	retry     string
	topicName func(string) string
}

var errScope = errors.New("cannot be done now")

func (r *scopeRun) handle(ctx context.Context, c *scopeConsumer, m *kafkaadapter.Message) error {
	attempt, _ := dedup.FromContext(ctx)
	key, of := attempt.DownstreamKey("charge"), c.group+" "+m.ID
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[of] == "" {
		r.keys[of] = key
	} else if r.keys[of] != key && m.Topic != "" {
		r.keys[of] += " " + key // wantKeys fails then
	}
	if c.fails {
		return errScope
	}
	r.effects[c.group+" "+strings.TrimPrefix(m.Topic, r.name+"-")+" "+m.ID]++
	return nil
}

// consume runs a consumer until everything that was sent to its topics is committed.
func (r *scopeRun) consume(client string, c scopeConsumer) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	topics := make([]string, len(c.topics))
	for i, name := range c.topics {
		topics[i] = r.topic(name)
	}
	m := membership{brokers: r.brokers, group: r.topic(c.group), topics: topics,
		session: 6 * time.Second}
	cfg := r.config(client, &c)
	go func() { ended <- m.consume(ctx, client, cfg) }()
	admin, err := sarama.NewClusterAdmin(r.brokers, adminConfig())
	require.NoError(r.t, err)
	defer func() { _ = admin.Close() }()
	eventually(r.t, 60*time.Second, func() (bool, string) {
		select {
		case err := <-ended:
			ended <- err
			return true, ""
		default:
		}
		for i, name := range c.topics {
			offsets, err := admin.ListConsumerGroupOffsets(m.group,
				map[string][]int32{topics[i]: {0}})
			if err != nil {
				return false, err.Error()
			}
			if block := offsets.GetBlock(topics[i], 0); r.sent[name] > 0 &&
				(block == nil || block.Offset < r.sent[name]) {
				return false, fmt.Sprintf("%s is committed to %+v of %d", name, block, r.sent[name])
			}
		}
		return true, ""
	})
	cancel()
	require.NoError(r.t, <-ended)
}

func (r *scopeRun) config(client string, c *scopeConsumer) kafkaadapter.Config {
	r.t.Helper()
	cfg := kafkaadapter.Config{
		Deduper: r.dedup, TopicName: c.topicName,
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			return r.handle(ctx, c, m)
		},
		Attempts: kafkaadapter.Attempts{Max: c.attempts, RetryBase: 10 * time.Millisecond,
			RetryMax: 20 * time.Millisecond},
		Tuning: kafkaadapter.Tuning{CommitEvery: 20 * time.Millisecond, Drain: time.Second},
	}
	if c.retry != "" {
		cfg.RetryTopics = []string{r.topic(c.retry)}
	}
	switch {
	case c.park == "":
	case client == "franz":
		cfg.Park = deadLetters(r.t, franzProducer(r.t, r.brokers, 10*time.Second), r.topic(c.park))
	default:
		cfg.Park = deadLetters(r.t, saramaProducer(r.t, r.brokers), r.topic(c.park))
	}
	return cfg
}

// wantKeys requires that each message has had one DownstreamKey, from whichever topic it came.
func (r *scopeRun) wantKeys(n int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Len(r.t, r.keys, n)
	for of, key := range r.keys {
		assert.Len(r.t, strings.Fields(key), 1, of)
	}
}

func eachClient(t *testing.T, f func(t *testing.T, client string)) {
	t.Helper()
	for _, client := range []string{"sarama", "franz"} {
		t.Run(client, func(t *testing.T) { f(t, client) })
	}
}

// Two topics have the same ids for different messages, and each message has its effect. When the
// topic was not in the key, half of them were skipped.
func TestTwoTopicsWithTheSameIDs(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders", "payments")
		r.send("orders", 100)
		r.send("payments", 100)
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders", "payments"}})
		assert.Len(t, r.effects, 200)
		assert.Zero(t, r.causes[driver.OtherSource])
	})
}

// Two groups in one namespace have an effect each. The second one used to have none.
func TestTwoGroupsInOneNamespace(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders")
		r.send("orders", 100)
		for _, group := range []string{"billing", "mailer"} {
			r.consume(client, scopeConsumer{group: group, topics: []string{"orders"}})
		}
		assert.Len(t, r.effects, 200)
		for of, n := range maps.All(r.effects) {
			assert.Equal(t, 1, n, of)
		}
	})
}

// A message that is tried again from a retry topic keeps its record and its DownstreamKey. A copy
// that is sent to its first topic is a duplicate.
func TestRetriedMessageKeepsItsRecord(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders", "retry")
		r.send("orders", 10)
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders"}, fails: true,
			attempts: 2, park: "retry"})
		require.Empty(t, r.effects)
		r.sent["retry"] = 10
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"retry"}, retry: "retry",
			attempts: 10})
		assert.Len(t, r.effects, 10)
		r.wantKeys(10)
		r.send("orders", 10)
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders", "retry"},
			retry: "retry"})
		assert.Len(t, r.effects, 10)
		assert.Equal(t, 10, r.causes[driver.OtherSource], "%v", r.causes)
	})
}

// A letter that is sent back keeps its record and its DownstreamKey. Another group that reads the
// topic finds it done.
func TestReplayedMessageKeepsItsRecord(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders", "dead")
		r.send("orders", 1)
		r.consume(client, scopeConsumer{group: "mailer", topics: []string{"orders"}})
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders"}, fails: true,
			attempts: 2, park: "dead"})
		letter := readOne(t, r.brokers, r.topic("dead"))
		back, err := kafkaadapter.Replay(t.Context(), r.dedup, letter)
		require.NoError(t, err)
		require.Equal(t, r.topic("orders"), back.Topic)
		require.NoError(t, saramaProducer(t, r.brokers).Send(t.Context(), back))
		r.sent["orders"]++
		for _, group := range []string{"billing", "mailer"} {
			r.consume(client, scopeConsumer{group: group, topics: []string{"orders"}})
		}
		assert.Equal(t, map[string]int{"billing orders m0": 1, "mailer orders m0": 1}, r.effects)
		r.wantKeys(2)
		_, err = kafkaadapter.Replay(t.Context(), r.dedup, letter)
		require.ErrorIs(t, err, kafkaadapter.ErrSettled)
	})
}

// A message that a mirror has copied is a duplicate if TopicName returns the topic of origin.
func TestMirroredMessageKeepsItsRecord(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders", "eu.orders")
		r.send("orders", 10)
		r.send("eu.orders", 12)
		name := func(topic string) string { return strings.Replace(topic, "eu.", "", 1) }
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders"},
			topicName: name})
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"eu.orders"},
			topicName: name})
		assert.Len(t, r.effects, 12)
		assert.Equal(t, 1, r.effects["billing eu.orders m11"])
		r.wantKeys(12)
	})
}

// The adapter ignores its own headers on an ordinary topic: a producer that writes them there
// cannot make a message look like a duplicate of another topic's message.
func TestForgedHeadersSkipNothing(t *testing.T) {
	eachClient(t, func(t *testing.T, client string) {
		r := newScopeRun(t, "orders", "payments", "retry")
		r.send("orders", 10)
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"orders"},
			retry: "retry"})
		forged := []sarama.RecordHeader{
			{Key: []byte(kafkaadapter.HeaderFirstTopic), Value: []byte(r.topic("orders"))},
			{Key: []byte(kafkaadapter.HeaderTopic), Value: []byte(r.topic("retry"))},
			{Key: []byte(kafkaadapter.HeaderScope),
				Value: []byte(kafkaadapter.ScopeOf(r.topic("billing"), r.topic("orders")))},
		}
		r.send("payments", 10, forged...)
		r.consume(client, scopeConsumer{group: "billing", topics: []string{"payments"},
			retry: "retry"})
		assert.Len(t, r.effects, 20)
	})
}
