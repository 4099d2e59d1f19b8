package kafkasarama

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// fakeProducer takes letters, unless fail says what is wrong.
type fakeProducer struct {
	sarama.SyncProducer
	mu      sync.Mutex
	fail    func(*sarama.ProducerMessage) error
	letters []*sarama.ConsumerMessage
}

// SendMessage implements sarama.SyncProducer.
func (p *fakeProducer) SendMessage(m *sarama.ProducerMessage) (partition int32, offset int64,
	err error) {
	p.mu.Lock()
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		if err := fail(m); err != nil {
			return 0, 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letters = append(p.letters, consumed(m))
	return 0, int64(len(p.letters)), nil
}

func (p *fakeProducer) failing(f func(*sarama.ProducerMessage) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func (p *fakeProducer) sent() []*sarama.ConsumerMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.letters)
}

// consumed is a produced message as a consumer gets it.
func consumed(m *sarama.ProducerMessage) *sarama.ConsumerMessage {
	bytesOf := func(e sarama.Encoder) []byte {
		if e == nil {
			return nil
		}
		b, _ := e.Encode()
		return append([]byte{}, b...)
	}
	out := &sarama.ConsumerMessage{Topic: m.Topic, Key: bytesOf(m.Key), Value: bytesOf(m.Value)}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, &h)
	}
	return out
}

// deadLetters is Config.Park over a fakeProducer.
func deadLetters(t *testing.T,
	p *fakeProducer) func(context.Context, *kafkaadapter.Message, error) error {
	t.Helper()
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{Producer: producer{p},
		Topic: func(m *kafkaadapter.Message) string { return m.Topic + ".dead" }})
	require.NoError(t, err)
	return park
}

// The message is sent as it is: nil is kept apart from empty, and headers keep their order.
func TestProducerSendsTheMessage(t *testing.T) {
	for name, row := range map[string]struct{ key, value []byte }{
		"key and value": {[]byte("k"), []byte("v")},
		"tombstone":     {[]byte("k"), nil},
		"empty":         {[]byte{}, []byte{}},
		"no key":        {nil, []byte("v")},
	} {
		m := &kafkaadapter.Message{Topic: "t", Key: row.key, Value: row.value}
		all := kafkaadapter.Headers{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "b",
			Value: []byte("2")}}
		m.SetHeaders(all)
		p := &fakeProducer{}
		sender, err := Producer(p)
		require.NoError(t, err)
		require.NoError(t, sender.Send(t.Context(), m))
		got := Message(p.sent()[0])
		assert.Equal(t, "t", got.Topic, name)
		assert.Equal(t, row.key, got.Key, name)
		assert.Equal(t, row.value, got.Value, name)
		assert.Equal(t, all, got.Headers(), name)
	}
	_, err := Producer(nil)
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "Producer", input.Field)
}

// Send returns ErrTooLarge for a message that sarama or the broker refuses as too large.
func TestProducerTellsWhatIsTooLarge(t *testing.T) {
	for refusal, tooLarge := range map[error]bool{
		sarama.ErrMessageSizeTooLarge: true,
		sarama.ConfigurationError("Attempt to produce message larger than configured " +
			"Producer.MaxMessageBytes: 9 > 8"): true,
		sarama.ConfigurationError("something else"): false,
		sarama.ErrNotEnoughReplicas:                 false,
	} {
		p := &fakeProducer{}
		p.failing(func(*sarama.ProducerMessage) error { return refusal })
		err := producer{p}.Send(t.Context(), &kafkaadapter.Message{})
		require.ErrorIs(t, err, refusal)
		assert.Equal(t, tooLarge, errors.Is(err, kafkaadapter.ErrTooLarge), refusal)
	}
}

// sarama's producer takes no context: when ctx ends, the caller returns, and the send continues.
func TestDeadLetterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProducer{}
		p.failing(func(*sarama.ProducerMessage) error { time.Sleep(time.Minute); return nil })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, kafkadriver.ErrRevoked)
		defer cancel()
		start := time.Now()
		err := deadLetters(t, p)(ctx, &kafkaadapter.Message{}, errBroken)
		require.ErrorIs(t, err, kafkadriver.ErrRevoked)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Hour) // the send that was left behind ends
		assert.Len(t, p.sent(), 1)
	})
}

func TestCheckProducer(t *testing.T) {
	good := func() *sarama.Config {
		c := sarama.NewConfig()
		c.Producer.RequiredAcks, c.Producer.Return.Successes, c.Version = sarama.WaitForAll,
			true, sarama.V2_8_0_0
		return c
	}
	assert.NoError(t, CheckProducer(good()))
	for _, row := range []struct {
		field, reason string
		change        func(*sarama.Config)
	}{
		{"Producer.RequiredAcks", "could be lost with the leader", func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.WaitForLocal
		}},
		{"Producer.RequiredAcks", "is not WaitForAll", func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.NoResponse
		}},
		{"Producer.Return", "must have Successes and Errors on", func(c *sarama.Config) {
			c.Producer.Return.Successes = false
		}},
		{"Producer.Return", "must have Successes and Errors on", func(c *sarama.Config) {
			c.Producer.Return.Errors = false
		}},
		{"Producer.Retry.Max", "a change of leaders would fail every letter",
			func(c *sarama.Config) { c.Producer.Retry.Max = 0 }},
		{"Version", "letters need headers", func(c *sarama.Config) {
			c.Version = sarama.V0_10_2_1
		}},
		{"Producer.Timeout", "at most a minute", func(c *sarama.Config) {
			c.Producer.Timeout = time.Hour
		}},
		{"Producer.Timeout", "must be positive", func(c *sarama.Config) { c.Producer.Timeout = 0 }},
	} {
		c := good()
		row.change(c)
		wantRefusal(t, CheckProducer(c), "sarama.Config."+row.field, row.reason)
	}
	wantRefusal(t, CheckProducer(nil), "sarama.Config", "is nil")
}
