package rabbitpub_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/rabbitpub"
)

var errDial = errors.New("nobody is there")

func noDial() (*amqp.Connection, error) { return nil, errDial }

func TestNew(t *testing.T) {
	for field, cfg := range map[string]rabbitpub.Config{
		"Dial":    {},
		"MaxSize": {Dial: noDial, MaxSize: -1},
	} {
		_, err := rabbitpub.New(cfg)
		var input *outbox.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "rabbitpub.Config."+field, input.Field)
	}
}

func TestCheck(t *testing.T) {
	p, err := rabbitpub.New(rabbitpub.Config{Dial: noDial, MaxSize: 10})
	require.NoError(t, err)
	header := func(name string) outbox.Message {
		return outbox.Message{Headers: []outbox.Header{{Key: name}}}
	}
	for _, m := range []outbox.Message{{}, {Payload: make([]byte, 10)}, header("h"),
		header(strings.Repeat("h", 255)), header("cc")} {
		assert.NoError(t, p.Check(&m))
	}
	for name, m := range map[string]outbox.Message{"payload": {Payload: make([]byte, 11)},
		"CC": header("CC"), "BCC": header("BCC"), "name": header(strings.Repeat("h", 256))} {
		assert.Error(t, p.Check(&m), name)
	}
	p, err = rabbitpub.New(rabbitpub.Config{Dial: noDial})
	require.NoError(t, err)
	assert.NoError(t, p.Check(&outbox.Message{Payload: make([]byte, 16<<20)}))
	assert.Error(t, p.Check(&outbox.Message{Payload: make([]byte, 16<<20+1)}))
}

// While nobody answers, a call ends with its context, and all messages fail.
func TestPublishWithoutBroker(t *testing.T) {
	messages := []outbox.Message{{ID: "1", Topic: "t"}, {ID: "2", Topic: "t"}}
	p, err := rabbitpub.New(rabbitpub.Config{Dial: noDial})
	require.NoError(t, err)
	results := p.Publish(t.Context(), messages)
	require.Len(t, results, 2)
	require.ErrorIs(t, results[0], errDial)
	require.ErrorIs(t, results[1], errDial)

	stuck := make(chan struct{})
	p, err = rabbitpub.New(rabbitpub.Config{Dial: func() (*amqp.Connection, error) {
		<-stuck
		return noDial()
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDial)
	assert.Equal(t, []error{errDial, errDial}, p.Publish(ctx, messages))
	close(stuck)
	require.NoError(t, p.Close())
	assert.ErrorContains(t, p.Publish(t.Context(), messages)[0], "closed")
}

// A Dial that panics, or returns neither a connection nor an error, fails its call and not the
// process.
func TestPublishWithABrokenDial(t *testing.T) {
	for text, dial := range map[string]func() (*amqp.Connection, error){
		"no connection": func() (conn *amqp.Connection, err error) { return conn, err },
		"nobody":        func() (*amqp.Connection, error) { panic(errDial) },
	} {
		p, err := rabbitpub.New(rabbitpub.Config{Dial: dial})
		require.NoError(t, err)
		for range 2 {
			results := p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "t"}})
			require.Len(t, results, 1)
			require.ErrorContains(t, results[0], text)
		}
		require.NoError(t, p.Close())
	}
}
