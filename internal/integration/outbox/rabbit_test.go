package outbox_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/rabbitpub"
)

func rabbitPublisher(t *testing.T, url string,
	edit ...func(*rabbitpub.Config)) *rabbitpub.Publisher {
	t.Helper()
	cfg := rabbitpub.Config{Dial: func() (*amqp.Connection, error) { return amqp.Dial(url) }}
	for _, f := range edit {
		f(&cfg)
	}
	p, err := rabbitpub.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// rabbitChannel returns a channel for the test's own reads.
func rabbitChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(t, err)
	return ch
}

func queue(t *testing.T, url, name string, args amqp.Table) {
	t.Helper()
	_, err := rabbitChannel(t, url).QueueDeclare(name, true, false, false, false, args)
	require.NoError(t, err)
}

// queued takes all messages of a queue.
func queued(t *testing.T, url, name string) (all []amqp.Delivery) {
	t.Helper()
	ch := rabbitChannel(t, url)
	for {
		m, ok, err := ch.Get(name, true)
		require.NoError(t, err)
		if !ok {
			return all
		}
		all = append(all, m)
	}
}

func rabbitTarget(s *servertest.Server) *target {
	return &target{
		publisher: func(t *testing.T) outbox.Publisher { return rabbitPublisher(t, s.Addr) },
		create:    func(t *testing.T, topic string) { queue(t, s.Addr, topic, nil) },
		received: func(t *testing.T, topic string) (all []outbox.Message) {
			for _, m := range queued(t, s.Addr, topic) {
				id, _ := m.Headers[outbox.DefaultIDHeader].(string)
				assert.Equal(t, m.MessageId, id)
				all = append(all, outbox.Message{ID: id, Topic: m.RoutingKey, Payload: m.Body})
			}
			return all
		},
		kill:  func(*testing.T) { s.Kill(1) },
		start: func(*testing.T) { s.Start(1) },
	}
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	s := servertest.Private(t, servertest.KindRabbitMQ)
	testTarget(t, rabbitTarget(s))
	for name, test := range map[string]func(*testing.T, *servertest.Server){
		"message": testRabbitMessage, "no queue": testRabbitNoQueue,
		"no exchange": testRabbitNoExchange, "refused": testRabbitRefused,
		"too large": testRabbitTooLarge, "frozen": testRabbitFrozen,
		"lost connection": testRabbitLostConnection, "alarm": testRabbitAlarm,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func testRabbitMessage(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	results := rabbitPublisher(t, s.Addr).Publish(t.Context(), []outbox.Message{{
		ID: "id \u00e4", Topic: topic, Key: []byte("k"), Payload: []byte{0, 1, '\n'},
		Headers: []outbox.Header{{Key: "one", Value: []byte("1\n")}, {Key: "many"},
			{Key: "many", Value: []byte("2")}, {Key: "many", Value: []byte("3")}, {}},
	}})
	require.Equal(t, []error{nil}, results)
	got := queued(t, s.Addr, topic)
	require.Len(t, got, 1)
	assert.Equal(t, "id \u00e4", got[0].MessageId)
	assert.EqualValues(t, amqp.Persistent, got[0].DeliveryMode)
	assert.Equal(t, amqp.Table{"one": "1\n", "many": []any{"", "2", "3"}, "": ""},
		got[0].Headers)
	assert.Equal(t, []byte{0, 1, '\n'}, got[0].Body)
}

// A message that no queue takes gets an error, and one that a queue takes next to it does not.
func testRabbitNoQueue(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	p := rabbitPublisher(t, s.Addr)
	var messages []outbox.Message
	for i := range 600 {
		m := outbox.Message{ID: fmt.Sprint(i / 3), Topic: topic} // IDs occur more than once
		if i%3 > 0 {
			m.Topic += "-missing"
		}
		messages = append(messages, m)
	}
	for i, err := range p.Publish(t.Context(), messages) {
		if i%3 == 0 {
			continue // of messages with one ID, any may have the error
		}
		require.NotErrorIs(t, err, outbox.ErrRejected, "somebody may make the queue")
	}
	assert.Len(t, queued(t, s.Addr, topic), 200)
	for i := range messages {
		messages[i].ID = fmt.Sprint("own", i)
	}
	for i, err := range p.Publish(t.Context(), messages) {
		if i%3 == 0 {
			assert.NoError(t, err, i)
		} else {
			assert.ErrorContains(t, err, "312 NO_ROUTE", i)
		}
	}
	assert.Len(t, queued(t, s.Addr, topic), 200)
	queue(t, s.Addr, topic+"-missing", nil)
	require.Equal(t, []error{nil}, p.Publish(t.Context(), messages[1:2]))
}

func testRabbitNoExchange(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	p := rabbitPublisher(t, s.Addr, func(c *rabbitpub.Config) { c.Exchange = topic })
	queue(t, s.Addr, topic, nil)
	messages := []outbox.Message{{ID: "1", Topic: topic}, {ID: "2", Topic: topic}}
	for _, err := range p.Publish(t.Context(), messages) {
		require.ErrorContains(t, err, "NOT_FOUND - no exchange")
		require.NotErrorIs(t, err, outbox.ErrRejected)
	}
	ch := rabbitChannel(t, s.Addr)
	require.NoError(t, ch.ExchangeDeclare(topic, "topic", true, false, false, false, nil))
	require.NoError(t, ch.QueueBind(topic, "#", topic, false, nil))
	require.Equal(t, []error{nil, nil}, p.Publish(t.Context(), messages))
}

// A full queue refuses messages. The next message of the key is not sent.
func testRabbitRefused(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	p := rabbitPublisher(t, s.Addr)
	var messages []outbox.Message
	for i := range 5 {
		messages = append(messages, numbered("k", i))
		messages[i].Topic = topic
	}
	results := p.Publish(t.Context(), messages)
	failed := 0
	for i, err := range results {
		if err != nil {
			failed++
			require.NotErrorIs(t, err, outbox.ErrRejected)
		}
		assert.Equal(t, failed > 0, err != nil, "a later one was accepted, at %d", i)
	}
	require.Positive(t, failed)
	require.ErrorContains(t, results[5-failed], "basic.nack")
	assert.Len(t, queued(t, s.Addr, topic), 5-failed)
	require.NoError(t, p.Publish(t.Context(), messages[:1])[0], "the channel is still good")
}

// The server closes the channel for a message that is too large.
func testRabbitTooLarge(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	limited := func(c *rabbitpub.Config) { c.MaxSize = 2_000_000 }
	testOneTooLarge(t, rabbitTarget(s), topic, rabbitPublisher(t, s.Addr, limited), 2_000_001)
	p := rabbitPublisher(t, s.Addr)
	results := p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic,
		Payload: make([]byte, 2_000_001)}})
	require.ErrorContains(t, results[0], "PRECONDITION_FAILED - message size")
	require.Equal(t, []error{nil},
		p.Publish(t.Context(), []outbox.Message{{ID: "2", Topic: topic}}))
}

func testRabbitFrozen(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	fresh, used := rabbitPublisher(t, s.Addr), rabbitPublisher(t, s.Addr)
	require.Equal(t, []error{nil},
		used.Publish(t.Context(), []outbox.Message{{ID: "0", Topic: topic}}))
	s.Stop(1)
	silent(t, fresh, topic) // has to dial
	silent(t, used, topic+"-later")
	silent(t, used, topic) // has to open a channel
	s.Cont(1)
	// The answers to the earlier messages come now, and this call must not take them for its own.
	queue(t, s.Addr, topic+"-later", nil)
	require.Equal(t, []error{nil},
		used.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic + "-later"}}))
	for _, p := range []*rabbitpub.Publisher{fresh, used} {
		require.Equal(t, []error{nil},
			p.Publish(t.Context(), []outbox.Message{{ID: "4", Topic: topic}}))
	}
}

// soon polls until is returns true.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 10*time.Millisecond, what)
}

// control runs rabbitmqctl.
func control(t *testing.T, s *servertest.Server, args ...string) {
	t.Helper()
	script := string(s.File("ctl"))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh",
		append([]string{"-c", script, "ctl"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func testRabbitLostConnection(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	p := rabbitPublisher(t, s.Addr)
	messages := []outbox.Message{{ID: "1", Topic: topic}}
	require.Equal(t, []error{nil}, p.Publish(t.Context(), messages))
	control(t, s, "close_all_connections", "of a test")
	soon(t, "the publisher dials again", func() bool {
		return p.Publish(t.Context(), messages)[0] == nil
	})
	require.NoError(t, p.Close())
	require.ErrorContains(t, p.Publish(t.Context(), messages)[0], "the publisher is closed")
}

// While an alarm is on, RabbitMQ takes nothing. A publisher that knows it returns an error at once.
func testRabbitAlarm(t *testing.T, s *servertest.Server) {
	topic := servertest.Prefix(t)
	queue(t, s.Addr, topic, nil)
	p := rabbitPublisher(t, s.Addr)
	messages := []outbox.Message{{ID: "1", Topic: topic}}
	require.Equal(t, []error{nil}, p.Publish(t.Context(), messages))
	t.Cleanup(func() { control(t, s, "set_vm_memory_high_watermark", "0.4") })
	control(t, s, "set_vm_memory_high_watermark", "absolute", "1")
	soon(t, "the connection is blocked", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = p.Publish(ctx, messages)
		return ctx.Err() == nil
	})
	err := p.Publish(t.Context(), messages)[0]
	require.ErrorContains(t, err, "blocks the connection: low on memory")
	require.NotErrorIs(t, err, outbox.ErrRejected)
	control(t, s, "set_vm_memory_high_watermark", "0.4")
	soon(t, "the connection is not blocked any more", func() bool {
		return p.Publish(t.Context(), messages)[0] == nil
	})
}
