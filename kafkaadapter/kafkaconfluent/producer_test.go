package kafkaconfluent

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
)

type parkFunc = func(context.Context, *kafkaadapter.Message, error) error

// deadLetters makes a dead-letter topic, and what sends to it.
func (r *rig) deadLetters(change kafka.ConfigMap) (kafkaadapter.Producer, parkFunc) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.CreateTopic("dead", 1, nil))
	config := kafka.ConfigMap{"bootstrap.servers": strings.Join(r.cluster.ListenAddrs(), ","),
		"message.timeout.ms": 5000}
	maps.Copy(config, change)
	require.NoError(r.t, CheckProducer(config))
	client, err := kafka.NewProducer(&config)
	require.NoError(r.t, err)
	go func() {
		for range client.Events() { // until it is closed
		}
	}()
	r.t.Cleanup(client.Close)
	p, err := Producer(client)
	require.NoError(r.t, err)
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{Producer: p,
		Topic: func(*kafkaadapter.Message) string { return "dead" }})
	require.NoError(r.t, err)
	return p, park
}

// A poison message uses its attempts up, is sent to the dead-letter topic with what there is
// to know of it, and comes back under its own id. Meanwhile the topic is down.
func TestDeadLetterAndReplay(t *testing.T) {
	r := newRig(t, cooperative, 1)
	producer, park := r.deadLetters(nil)
	fault := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead",
		Err: kerr.InvalidRecord, Count: 2})
	healed := make(chan struct{})
	m := r.join(func(_ context.Context, m *kafkaadapter.Message) error {
		select {
		case <-healed:
			return nil
		default:
		}
		if m.ID == "evt_000003" {
			return kafkaadapter.RetryAfter(time.Millisecond, errBroken)
		}
		return nil
	}, func(c *kafkaadapter.Config) { c.Attempts.Max, c.Park = 3, park }, nil)
	r.parked["evt_000003"] = true // given up on, and not failed for good
	r.produce(0, 0, 6)
	r.committed()
	assert.Equal(t, 2, fault.Hits(), "letters for which the dead-letter topic was down")
	r.once(5)

	letters := r.newClient(kgo.ConsumeTopics("dead")).PollFetches(t.Context()).Records()
	require.Len(t, letters, 1)
	letter := messageFrom(letters[0])
	for key, want := range map[string]string{
		kafkaadapter.HeaderID: "evt_000003", kafkaadapter.HeaderTopic: orders,
		kafkaadapter.HeaderPartition: "0", kafkaadapter.HeaderOffset: "3",
		kafkaadapter.HeaderAttempts: "3", "message-id": "evt_000003",
	} {
		assert.Equal(t, want, letter.Header(key), key)
	}
	assert.Contains(t, letter.Header(kafkaadapter.HeaderError), "broken")
	assert.Equal(t, "evt_000003", string(letter.Value))

	close(healed)
	d := r.deduper(r.store)
	again, err := kafkaadapter.Replay(t.Context(), d, letter)
	require.NoError(t, err)
	r.mu.Lock()
	r.log[0] = append(r.log[0], "evt_000003")
	r.mu.Unlock()
	require.NoError(t, producer.Send(t.Context(), again))
	r.committed()
	m.leave()
	r.once(6)
	_, err = kafkaadapter.Replay(t.Context(), d, letter)
	require.ErrorIs(t, err, kafkaadapter.ErrSettled, "replayed again")
	_, err = kafkaadapter.Replay(t.Context(), d, messageFrom(&kgo.Record{}))
	require.ErrorIs(t, err, kafkaadapter.ErrNoDeadLetter)
}

// A letter that is too large goes without its value, and if need be without key and headers.
func TestLargeLetters(t *testing.T) {
	r := newRig(t, cooperative, 1)
	_, park := r.deadLetters(kafka.ConfigMap{"message.max.bytes": 10_000})
	huge := []byte(strings.Repeat("x", 20_000))
	for _, rec := range []*kgo.Record{
		{Topic: orders, Key: []byte("k"), Value: huge},
		{Topic: orders, Key: huge, Value: huge,
			Headers: []kgo.RecordHeader{{Key: "h", Value: huge}}},
	} {
		require.NoError(t, park(t.Context(), messageFrom(rec), errBroken))
	}
	reader := r.newClient(kgo.ConsumeTopics("dead"))
	var letters []*kgo.Record
	for len(letters) < 2 {
		letters = append(letters, reader.PollFetches(t.Context()).Records()...)
	}
	for i, l := range letters {
		assert.Empty(t, l.Value)
		assert.Equal(t, "20000", messageFrom(l).Header(kafkaadapter.HeaderTooLarge))
		assert.Equal(t, i == 0, len(l.Key) > 0, "letter %d has a key", i)
		assert.Empty(t, messageFrom(l).Header("h"))
	}
	_, err := kafkaadapter.Replay(t.Context(), nil, messageFrom(letters[0]))
	require.ErrorIs(t, err, kafkaadapter.ErrNoDeadLetter)
}

// messageFrom is the message of a record as this client would deliver it.
func messageFrom(r *kgo.Record) *kafkaadapter.Message {
	m := &kafka.Message{Key: r.Key, Value: r.Value, TopicPartition: kafka.TopicPartition{
		Topic: &r.Topic, Partition: r.Partition, Offset: kafka.Offset(r.Offset)}}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return Message(m)
}

// A producer that could lose a letter, or wait for one forever, is refused.
func TestBadProducer(t *testing.T) {
	for _, good := range []kafka.ConfigMap{
		{"message.timeout.ms": 60000},
		{"delivery.timeout.ms": "1000", "acks": "all", "enable.idempotence": true},
		{"message.timeout.ms": 1000, "request.required.acks": -1},
	} {
		require.NoError(t, CheckProducer(good), "%v", good)
	}
	for property, value := range map[string]kafka.ConfigValue{
		"acks": 1, "request.required.acks": "0", "transactional.id": "t",
		"message.timeout.ms": 0, "message.timeout.ms ": 60001, "message.timeout.ms  ": nil,
		"default.topic.config": kafka.ConfigMap{"acks": 1},
	} {
		config := kafka.ConfigMap{"message.timeout.ms": 1000}
		if property = strings.TrimSpace(property); value == nil {
			delete(config, property)
		} else {
			config[property] = value
		}
		wantInput(t, CheckProducer(config), "kafka.ConfigMap."+property)
	}
	_, err := Producer(nil)
	wantInput(t, err, "Producer")
	client, err := kafka.NewProducer(&kafka.ConfigMap{})
	require.NoError(t, err)
	client.Close()
	_, err = Producer(client)
	wantInput(t, err, "Producer")
}

// A letter that is not delivered is an error, and whoever does not wait is not held up.
func TestLetterIsNotDelivered(t *testing.T) {
	r := newRig(t, cooperative, 1)
	p, _ := r.deadLetters(kafka.ConfigMap{"message.timeout.ms": 300})
	r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas,
		Count: 1000})
	letter := &kafkaadapter.Message{Topic: "dead", Value: []byte("v")}
	assert.Equal(t, kafka.ErrMsgTimedOut, codeOf(p.Send(t.Context(), letter)))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	require.ErrorIs(t, p.Send(ctx, letter), errBroken)
}
