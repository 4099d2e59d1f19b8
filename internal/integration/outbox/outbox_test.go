package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/outbox"
)

// What is inserted comes out as it was, with the id in its header.
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
		if last.Key != outbox.DefaultIDHeader || string(last.Value) != m.ID || m.ID == "" {
			t.Errorf("%q: the last header is %q: %q", m.ID, last.Key, last.Value)
		}
		m.Headers = m.Headers[:len(m.Headers)-1]
		got[m.ID] = m
	}
	for _, want := range in[:3] {
		if m := got[want.ID]; fmt.Sprintf("%#v", m) != fmt.Sprintf("%#v", normal(want)) {
			t.Errorf("got  %#v\nwant %#v", m, want)
		}
		delete(got, want.ID)
	}
	for id, m := range got { // the one without an id
		if len(id) < 26 || m.Key != nil || !bytes.Equal(m.Payload, in[3].Payload) {
			t.Errorf("%q, %q, %d bytes", id, m.Key, len(m.Payload))
		}
	}
}

// normal has no headers as an empty list.
func normal(m outbox.Message) outbox.Message {
	m.Headers = append([]outbox.Header{}, m.Headers...)
	return m
}

// What is rolled back is never published, and what is not committed yet is published later,
// although rows with larger ids were published meanwhile.
func TestOnlyWhatIsCommitted(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		start(t, h.relay(t, b))
		early, err := h.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.box.InsertTx(t.Context(), early, numbered("a", 0)); err != nil {
			t.Fatal(err)
		}
		gone, err := h.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.box.InsertTx(t.Context(), gone, numbered("never", 0)); err != nil {
			t.Fatal(err)
		}
		// The same shard, and a larger id.
		h.insert(t, outbox.Message{ID: "b/0", Topic: "other", Key: []byte("a")})
		b.wait(t, 1)
		if err := gone.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := early.Commit(); err != nil {
			t.Fatal(err)
		}
		h.box.Notify()
		h.drained(t)
		if got := judge(b.wait(t, 2), map[string]int{"a": 1, "b": 1}); got != (tally{}) ||
			len(b.messages) != 2 {
			t.Errorf("%+v, %d messages", got, len(b.messages))
		}
	})
}

// A message with a smaller id is committed while a later one of its shard is being published: it
// must outlive the deletion of that one.
func TestCommittedWhileAnotherIsPublished(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		early, err := h.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.box.InsertTx(t.Context(), early, numbered("a", 0)); err != nil {
			t.Fatal(err)
		}
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
		if tl := judge(got, map[string]int{"a": 1, "b": 1}); tl != (tally{}) {
			t.Errorf("%+v of %d", tl, len(got))
		}
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

// Lag tells what waits, and for how long, also when no relay runs.
func TestLag(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		if lag, err := h.box.Lag(t.Context(), h.db); err != nil || lag != (outbox.Lag{}) {
			t.Errorf("Lag of nothing = %+v, %v", lag, err)
		}
		var many []outbox.Message
		for i := range 1200 {
			many = append(many, numbered(fmt.Sprint("k", i%40), i/40))
		}
		h.insert(t, many...)
		eventually(t, "the oldest is 20 ms old", func() bool {
			lag, err := h.box.Lag(t.Context(), h.db)
			if err != nil || lag.Pending != 1200 || lag.Parked != 0 {
				t.Fatalf("Lag = %+v, %v", lag, err)
			}
			return lag.Oldest >= 20*time.Millisecond && lag.Oldest < patience
		})
		b := newBroker()
		r := h.relay(t, b)
		stop := start(t, r)
		h.drained(t)
		stop()
		if got := r.Stats(); got.Published != 1200 || got.Failures != 0 || got.Batches < 1 {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// When the context of Run ends, what is in hand is still deleted, and Run returns nil.
func TestGracefulStop(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		ctx, cancel := context.WithCancel(t.Context())
		b.before = func(context.Context, []outbox.Message) error { cancel(); return nil }
		h.insert(t, numbered("a", 0), numbered("a", 1))
		if err := h.relay(t, b).Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		if lag, err := h.box.Lag(t.Context(), h.db); err != nil || lag.Pending != 0 {
			t.Errorf("Lag = %+v, %v", lag, err)
		}
	})
}
