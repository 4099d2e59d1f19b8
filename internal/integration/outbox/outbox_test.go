package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// Messages come out as they were inserted, with the id in a header.
func TestRoundTrip(t *testing.T) {
	forEach(t, testRoundTrip)
	for _, e := range []engine{postgresIn("exec"), postgresIn("simple_protocol")} {
		t.Run(e.name, func(t *testing.T) { testRoundTrip(t, e) })
	}
}

func testRoundTrip(t *testing.T, e engine) {
	h := newHouse(t, e)
	b := newBroker()
	in := []outbox.Message{
		{ID: "named \u00e4", Topic: "a.b-c_d", Key: []byte("k\x00\xff"),
			Payload: []byte{0, 1, 0xff, '\'', '\\'},
			Headers: []outbox.Header{{Key: "x", Value: []byte("1")}, {Key: "x"},
				{Key: "", Value: []byte{}}, {Key: "trace", Value: []byte{0}}}},
		{ID: "tombstone", Topic: "t", Key: []byte("k")},
		{ID: "empty", Topic: "t", Key: []byte("k"), Payload: []byte{}},
		{Topic: "t", Payload: bytes.Repeat([]byte("x"), outbox.DefaultMaxPayload)},
	}
	h.insert(t, in...)
	start(t, h.relay(t, b))
	h.drained(t)
	got := map[string]outbox.Message{}
	for _, m := range b.wait(t, len(in)) {
		last := m.Headers[len(m.Headers)-1]
		assert.Equal(t, outbox.DefaultIDHeader, last.Key)
		assert.Equal(t, m.ID, string(last.Value))
		assert.NotEqual(t, "", m.ID)
		m.Headers = m.Headers[:len(m.Headers)-1]
		got[m.ID] = m
	}
	for _, want := range in[:3] {
		m := got[want.ID]
		assert.Equal(t, fmt.Sprintf("%#v", normal(want)), fmt.Sprintf("%#v", m))
		delete(got, want.ID)
	}
	for id, m := range got { // the one without an id
		assert.GreaterOrEqual(t, len(id), 26)
		assert.Nil(t, m.Key)
		assert.Equal(t, in[3].Payload, m.Payload)
	}
}

// normal replaces headers that are nil by an empty list.
func normal(m outbox.Message) outbox.Message {
	m.Headers = append([]outbox.Header{}, m.Headers...)
	return m
}

// Messages that are rolled back are never published, and those that are committed later come later,
// although rows with larger ids were published meanwhile.
func TestOnlyWhatIsCommitted(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		start(t, h.relay(t, b))
		early, err := h.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, h.box.InsertTx(t.Context(), early, numbered("a", 0)))
		gone, err := h.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, h.box.InsertTx(t.Context(), gone, numbered("never", 0)))
		// The same shard, and a larger id.
		h.insert(t, outbox.Message{ID: "b/0", Topic: "other", Key: []byte("a")})
		b.wait(t, 1)
		require.NoError(t, gone.Rollback())
		require.NoError(t, early.Commit())
		h.box.Notify()
		h.drained(t)
		got := judge(b.wait(t, 2), map[string]int{"a": 1, "b": 1})
		assert.Equal(t, tally{}, got)
		assert.Len(t, b.messages, 2)
	})
}

// A message with a smaller id is committed while a later one of its shard is being published: it
// must not be deleted with that one.
func TestCommittedWhileAnotherIsPublished(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		early, err := h.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, h.box.InsertTx(t.Context(), early, numbered("a", 0)))
		b := newBroker()
		b.before = func(_ context.Context, messages []outbox.Message) error {
			if messages[0].Topic == "other" {
				return early.Commit()
			}
			return nil
		}
		h.insert(t, outbox.Message{ID: "b/0", Topic: "other", Key: []byte("a")})
		start(t, h.relay(t, b))
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, map[string]int{"a": 1, "b": 1})
		assert.Equal(t, tally{}, tl)
	})
}

// A signal wakes a relay that would poll once in an hour, and a relay without a signal polls.
func TestWakeUp(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		stop := start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.PollMin, c.PollMax = time.Hour, time.Hour
		}))
		for i := range 3 {
			h.insert(t, numbered("a", i))
			h.box.Notify()
			b.wait(t, i+1)
		}
		stop()
		start(t, h.relay(t, b))
		h.insert(t, numbered("a", 3))
		b.wait(t, 4)
	})
}

// Lag reports how many messages wait, and for how long, also when no relay runs.
func TestLag(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.Equal(t, outbox.Lag{}, lag)
		var many []outbox.Message
		for i := range 1200 {
			many = append(many, numbered(fmt.Sprint("k", i%40), i/40))
		}
		h.insert(t, many...)
		eventually(t, "the oldest is 20 ms old", func() bool {
			lag, err := h.box.Lag(t.Context(), h.db)
			require.NoError(t, err)
			require.EqualValues(t, 1200, lag.Pending)
			require.Zero(t, lag.Parked)
			return lag.Oldest >= 20*time.Millisecond && lag.Oldest < patience
		})
		b := newBroker()
		r := h.relay(t, b)
		stop := start(t, r)
		h.drained(t)
		stop()
		got := r.Stats()
		assert.EqualValues(t, 1200, got.Published)
		assert.Zero(t, got.Failures)
		assert.Positive(t, got.Batches)
	})
}

// When the context of Run ends, the batch in hand is still deleted, and Run returns nil.
func TestGracefulStop(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		ctx, cancel := context.WithCancel(t.Context())
		b.before = func(context.Context, []outbox.Message) error { cancel(); return nil }
		h.insert(t, numbered("a", 0), numbered("a", 1))
		assert.NoError(t, h.relay(t, b).Run(ctx))
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.Zero(t, lag.Pending)
	})
}
