package natsqueue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/natsqueue"
)

// newConsumer makes a stream with one subject, and a consumer.
func newConsumer(t *testing.T, js jetstream.JetStream,
	cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS",
		Subjects: []string{"orders"}})
	require.NoError(t, err)
	consumer, err := js.CreateConsumer(t.Context(), "ORDERS", cfg)
	require.NoError(t, err)
	return consumer
}

// Settings with which messages are lost, or run again, are refused.
func TestNewRefuses(t *testing.T) {
	js := startBroker(t).connect(t)
	for field, c := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts natsqueue.Options
	}{
		"ConsumerConfig.Durable": {cfg: jetstream.ConsumerConfig{}},
		"ConsumerConfig.AckPolicy": {cfg: jetstream.ConsumerConfig{Durable: "all",
			AckPolicy: jetstream.AckAllPolicy}},
		"ConsumerConfig.MaxDeliver": {cfg: jetstream.ConsumerConfig{Durable: "five",
			AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5}},
		"Options": {cfg: jetstream.ConsumerConfig{Durable: "dead",
			AckPolicy: jetstream.AckExplicitPolicy},
			opts: natsqueue.Options{DeadLetters: "dead"}},
	} {
		_, err := natsqueue.New(newConsumer(t, js, c.cfg), c.opts)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "natsqueue."+field, input.Field)
	}
	_, err := natsqueue.New(nil, natsqueue.Options{})
	require.Error(t, err)
}

func TestDelivery(t *testing.T) {
	js := startBroker(t).connect(t)
	consumer := newConsumer(t, js, jetstream.ConsumerConfig{Durable: "billing",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
		BackOff: []time.Duration{time.Minute, 8 * time.Second}, MaxDeliver: -1})
	src, err := natsqueue.New(consumer, natsqueue.Options{})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders", []byte("one"), jetstream.WithMsgID("order-1"))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders", []byte("two"))
	require.NoError(t, err)
	ds, err := src.Fetch(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	assert.Equal(t, "order-1", ds[0].ID)
	assert.Equal(t, "ORDERS:2", ds[1].ID)
	assert.Equal(t, "billing/ORDERS", ds[0].Scope)
	assert.Equal(t, "one", string(ds[0].Payload))
	assert.Equal(t, 1, ds[0].Deliveries)
	assert.Equal(t, 2*time.Second, ds[0].Every, "a quarter of the shortest of BackOff")
	assert.Nil(t, ds[0].Park)
	require.NoError(t, ds[0].Nack(t.Context(), 0))
	ds, err = src.Fetch(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	assert.Equal(t, 2, ds[0].Deliveries)
}

// A dead letter has the headers of its message, except those that the server acts on: a stream that
// has both would drop a letter with the Nats-Msg-Id of its message as a copy.
func TestParkedMessage(t *testing.T) {
	js := startBroker(t).connect(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS",
		Subjects: []string{"orders", "dead"}})
	require.NoError(t, err)
	consumer, err := js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "orders"})
	require.NoError(t, err)
	src, err := natsqueue.New(consumer, natsqueue.Options{DeadLetters: "dead", Publisher: js})
	require.NoError(t, err)
	m := nats.NewMsg("orders")
	m.Header.Set("Trace", "abc")
	m.Header.Set(jetstream.MsgIDHeader, "order-1")
	_, err = js.PublishMsg(t.Context(), m)
	require.NoError(t, err)
	ds, err := src.Fetch(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, ds[0].Park(t.Context(), errors.New("no such\naccount")))
	stream, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	dead, err := stream.GetLastMsgForSubject(t.Context(), "dead")
	require.NoError(t, err)
	assert.Equal(t, "abc", dead.Header.Get("Trace"))
	assert.Equal(t, "order-1", dead.Header.Get(natsqueue.HeaderID))
	assert.Equal(t, "billing/ORDERS", dead.Header.Get(natsqueue.HeaderScope))
	assert.Equal(t, "no such account", dead.Header.Get(natsqueue.HeaderError))
	assert.Empty(t, dead.Header.Get(jetstream.MsgIDHeader))
}

// A consumer that is gone is not asked forever.
func TestGone(t *testing.T) {
	js := startBroker(t).connect(t)
	consumer := newConsumer(t, js, jetstream.ConsumerConfig{Durable: "billing",
		AckPolicy: jetstream.AckExplicitPolicy})
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "nats", Window: time.Hour,
		LeaseTTL: time.Second})
	require.NoError(t, err)
	cfg := queue.Config{Deduper: d,
		Handler: func(context.Context, *queue.Delivery) error { return nil }}
	ended := make(chan error, 1)
	go func() { ended <- natsqueue.Consume(t.Context(), consumer, cfg, natsqueue.Options{}) }()
	require.NoError(t, js.DeleteConsumer(t.Context(), "ORDERS", "billing"))
	err = <-ended
	assert.True(t, dedup.IsPermanent(err), "%v", err)

	js.Conn().Close()
	src, err := natsqueue.New(consumer, natsqueue.Options{})
	require.NoError(t, err)
	_, err = src.Fetch(t.Context(), 1)
	assert.True(t, dedup.IsPermanent(err), "%v", err)
}
