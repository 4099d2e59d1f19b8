package natspub_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/natspub"
)

// client returns one that looks for a server in the background. Nobody listens on port 1.
func client(t *testing.T, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	opts = append(opts, nats.RetryOnFailedConnect(true))
	conn, err := nats.Connect("nats://127.0.0.1:1", opts...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

func TestNew(t *testing.T) {
	for option, js := range map[string]jetstream.JetStream{
		"JetStream":     nil,
		"MaxReconnects": client(t),
	} {
		_, err := natspub.New(js)
		var input *outbox.InputError
		require.ErrorAs(t, err, &input, option)
		assert.Equal(t, "nats."+option, input.Field)
	}
	_, err := natspub.New(client(t, nats.MaxReconnects(-1)))
	assert.NoError(t, err)
}

// A client that does not reconnect cannot be made without a server.
func TestNewWithoutReconnects(t *testing.T) {
	js := client(t, nats.MaxReconnects(-1))
	js.Conn().Opts.AllowReconnect = false
	_, err := natspub.New(js)
	var input *outbox.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "nats.NoReconnect", input.Field)
}

func TestCheck(t *testing.T) {
	p, err := natspub.New(client(t, nats.MaxReconnects(-1)))
	require.NoError(t, err)
	header := func(key, value string) outbox.Message {
		return outbox.Message{ID: "id", Topic: "t",
			Headers: []outbox.Header{{Key: key, Value: []byte(value)}}}
	}
	for name, m := range map[string]outbox.Message{
		"bare":           {ID: "id", Topic: "t"},
		"header":         header("trace-id", "a b:\u00e4\x00"),
		"empty":          header("trace-id", ""),
		"largest header": header("h", strings.Repeat("x", 1<<16-1-12-5-11-4-len("t id"))),
	} {
		assert.NoError(t, p.Check(&m), name)
	}
	for name, m := range map[string]outbox.Message{
		"no name":           header("", "v"),
		"colon":             header("a:b", "v"),
		"name with a space": header("a b", "v"),
		"name not ASCII":    header("\u00e4", "v"),
		"line break":        header("h", "a\nb"),
		"carriage return":   header("h", "a\rb"),
		"space in front":    header("h", " a"),
		"tab behind":        header("h", "a\t"),
		"id with a space":   {ID: "id ", Topic: "t"},
		"large header":      header("h", strings.Repeat("x", 1<<16-12-5-11-4-len("t id"))),
	} {
		assert.Error(t, p.Check(&m), name)
	}
}

// Before it is connected the client does not know how large a message may be.
func TestCheckWithoutServer(t *testing.T) {
	p, err := natspub.New(client(t, nats.MaxReconnects(-1)))
	require.NoError(t, err)
	assert.NoError(t, p.Check(&outbox.Message{ID: "id", Topic: "t",
		Payload: bytes.Repeat([]byte("x"), 2<<20)}))
}
