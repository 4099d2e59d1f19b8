package kafkasegmentio

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// wantInput wants an error that names a field.
func wantInput(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	if assert.ErrorAs(t, err, &input, field) {
		assert.Equal(t, field, input.Field, "%v", err)
	}
}

func nothing(context.Context, *kafkaadapter.Message) error { return nil }

type resolver struct{ kafka.BrokerResolver }

// Arguments that make no sense are refused by their names, before a broker is contacted.
func TestBadArguments(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second})
	require.NoError(t, err)
	type arguments struct {
		brokers []string
		group   string
		topics  []string
		opts    Options
		cfg     kafkaadapter.Config
	}
	try := func(change func(*arguments)) error {
		a := arguments{[]string{"127.0.0.1:1"}, group, []string{orders},
			Options{Transport: &kafka.Transport{
				Dial: func(context.Context, string, string) (net.Conn, error) {
					t.Error("somebody is dialed")
					return nil, errors.New("no network")
				}}}, kafkaadapter.Config{Deduper: d, Handler: nothing}}
		change(&a)
		c, err := New(a.brokers, a.group, a.topics, a.opts, a.cfg)
		if err != nil {
			assert.Nil(t, c)
			return err
		}
		return nil
	}
	require.NoError(t, try(func(*arguments) {}))
	for field, change := range map[string]func(*arguments){
		"group":                       func(a *arguments) { a.group = "" },
		"brokers":                     func(a *arguments) { a.brokers = nil },
		"topics":                      func(a *arguments) { a.topics = []string{""} },
		"kafkaadapter.Config.Handler": func(a *arguments) { a.cfg.Handler = nil },
		"Options.Transport.Resolver": func(a *arguments) {
			a.opts.Transport.Resolver = resolver{}
		},
		"Options.Balancers": func(a *arguments) {
			a.opts.Balancers = []kafka.GroupBalancer{nil}
		},
		"Options.SessionTimeout":    func(a *arguments) { a.opts.SessionTimeout = -1 },
		"Options.HeartbeatInterval": func(a *arguments) { a.opts.HeartbeatInterval = time.Hour },
		"Options.RebalanceTimeout": func(a *arguments) {
			a.opts.RebalanceTimeout = 12 * time.Second
		},
		"Options.FetchBytes": func(a *arguments) { a.opts.FetchBytes = -1 },
	} {
		wantInput(t, try(change), field)
	}
	wantInput(t, Consume(t.Context(), nil, group, []string{orders}, Options{},
		kafkaadapter.Config{Deduper: d, Handler: nothing}), "brokers")
	c, err := New([]string{"127.0.0.1:1"}, group, []string{orders}, Options{},
		kafkaadapter.Config{Deduper: d, Handler: nothing})
	require.NoError(t, err)
	wantInput(t, c.Run(nil), "Context") //nolint:staticcheck // on purpose
}

// While the brokers cannot be reached, the observer gets errors. The end of ctx ends Run.
func TestBrokersAreUnreachable(t *testing.T) {
	r := newRig(t, 1)
	cfg := r.config(nil)
	c, err := New([]string{"127.0.0.1:1"}, group, []string{orders}, Options{}, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.eventually(func() (bool, string) {
		return len(r.groupErrors()) > 1, "no error is told"
	})
	require.ErrorIs(t, c.Run(ctx), kafkaadapter.ErrRunning)
	cancel()
	require.NoError(t, <-done)
}

// A writer under which a dead letter could be lost is refused.
func TestProducer(t *testing.T) {
	good := func() *kafka.Writer {
		return &kafka.Writer{Addr: kafka.TCP("127.0.0.1:1"), RequiredAcks: kafka.RequireAll}
	}
	for field, change := range map[string]func(*kafka.Writer){
		"RequiredAcks": func(w *kafka.Writer) { w.RequiredAcks = kafka.RequireOne },
		"Async":        func(w *kafka.Writer) { w.Async = true },
		"Addr":         func(w *kafka.Writer) { w.Addr = nil },
		"Topic":        func(w *kafka.Writer) { w.Topic = orders },
	} {
		w := good()
		change(w)
		_, err := Producer(w)
		wantInput(t, err, "kafka.Writer."+field)
	}
	_, err := Producer(nil)
	wantInput(t, err, "writer")
	w := good()
	w.BatchBytes = 10
	p, err := Producer(w)
	require.NoError(t, err)
	require.ErrorIs(t, p.Send(t.Context(), &kafkaadapter.Message{Topic: orders,
		Value: make([]byte, 100)}), kafkaadapter.ErrTooLarge)
}

// A letter arrives as it was sent, and can be read as a message.
func TestLetterAndMessage(t *testing.T) {
	r := newRig(t, 1)
	w := &kafka.Writer{Addr: kafka.TCP(r.cluster.ListenAddrs()...), RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond}
	t.Cleanup(func() { _ = w.Close() })
	p, err := Producer(w)
	require.NoError(t, err)
	source := kafka.Message{Topic: orders, Partition: 2, Offset: 7, Key: []byte("k"),
		Time: time.UnixMilli(5), Headers: []kafka.Header{{Key: "Message-ID", Value: []byte("1")},
			{Key: "message-id", Value: []byte("2")}}}
	m := Message(source)
	assert.Equal(t, "2", m.Header("MESSAGE-id"), "the last one")
	assert.Equal(t, source, m.Raw)
	require.NoError(t, p.Send(t.Context(), m))
	require.Error(t, p.Send(t.Context(), &kafkaadapter.Message{Topic: "nowhere"}))
	var got *kafkaadapter.Message
	r.run(r.config(func(_ context.Context, m *kafkaadapter.Message) error {
		got = m
		return nil
	}), r.committed(1))
	assert.Equal(t, "k", string(got.Key))
	assert.Nil(t, got.Value, "a tombstone")
	assert.Equal(t, m.Headers(), got.Headers())
	assert.NotEmpty(t, got.TopicID)
	assert.IsType(t, kafka.Message{}, got.Raw)
}
