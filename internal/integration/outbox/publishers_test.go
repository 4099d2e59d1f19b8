package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// target is a broker of its own for one publisher.
type target struct {
	publisher func(t *testing.T) outbox.Publisher
	// create makes the place where messages of a topic go.
	create func(t *testing.T, topic string)
	// received returns the messages there, in their order, and may remove them.
	received func(t *testing.T, topic string) []outbox.Message
	// kill ends the broker and its connections. start starts it again with its data.
	kill, start func(t *testing.T)
}

// testTarget tests that a publisher keeps the promises of an outbox.
func testTarget(t *testing.T, b *target) {
	t.Run("relay", func(t *testing.T) { testRelayTo(t, b) })
	t.Run("largest", func(t *testing.T) { testLargest(t, b) })
	t.Run("context", func(t *testing.T) { testContextEnds(t, b) })
	t.Run("restart", func(t *testing.T) { testRestart(t, b) })
}

// Many messages, of many keys and of none: each comes once, each key in order.
func testRelayTo(t *testing.T, b *target) {
	topic := servertest.Prefix(t)
	b.create(t, topic)
	h := newHouse(t, sqlite())
	const keys, each = 40, 25
	var many []outbox.Message
	committed := map[string]int{"none": 1}
	for i := range keys * each {
		m := numbered(fmt.Sprint("k", i%keys), i/keys)
		m.Topic = topic
		many = append(many, m)
		committed[fmt.Sprint("k", i%keys)] = each
	}
	h.insert(t, append(many, outbox.Message{ID: "none/0", Topic: topic})...)
	r := h.relay(t, b.publisher(t), func(c *outbox.RelayConfig) { c.BatchSize = 200 })
	began := time.Now()
	start(t, r)
	h.drained(t)
	t.Logf("%d messages in %v", len(many)+1, time.Since(began))
	got := b.received(t, topic)
	assert.Equal(t, tally{}, judge(got, committed))
	for _, m := range got {
		want := m.ID
		if m.ID == "none/0" {
			want = ""
		}
		assert.Equal(t, want, string(m.Payload))
	}
}

// With their defaults, publishers take the largest payload that an outbox takes.
func testLargest(t *testing.T, b *target) {
	topic := servertest.Prefix(t)
	b.create(t, topic)
	h := newHouse(t, sqlite())
	m := numbered("k", 0)
	m.Topic, m.Payload = topic, random(outbox.DefaultMaxPayload)
	h.insert(t, m)
	start(t, h.relay(t, b.publisher(t)))
	h.drained(t)
	got := b.received(t, topic)
	require.Len(t, got, 1)
	assert.Equal(t, m.Payload, got[0].Payload)
}

// With a context that has ended nothing is sent.
func testContextEnds(t *testing.T, b *target) {
	topic := servertest.Prefix(t)
	b.create(t, topic)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDown)
	results := b.publisher(t).Publish(ctx,
		[]outbox.Message{{ID: "1", Topic: topic}, {ID: "2", Topic: topic}})
	require.Len(t, results, 2)
	for _, err := range results {
		assert.ErrorIs(t, err, errDown)
	}
	assert.Empty(t, b.received(t, topic))
}

// acked counts what a publisher has acknowledged.
type acked struct {
	outbox.Publisher
	mu      sync.Mutex
	n       int
	changed chan struct{}
}

func (a *acked) Publish(ctx context.Context, messages []outbox.Message) []error {
	results := a.Publisher.Publish(ctx, messages)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, err := range results {
		if err == nil {
			a.n++
		}
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return results
}

// wait waits until n messages are acknowledged, and returns how many are.
func (a *acked) wait(t *testing.T, n int) int {
	t.Helper()
	most := limit(t)
	ended := time.After(most)
	for {
		a.mu.Lock()
		now, changed := a.n, a.changed
		a.mu.Unlock()
		if now >= n {
			return now
		}
		select {
		case <-changed:
		case <-ended:
			require.Fail(t, "too few messages", "%d of %d in %v", now, n, most)
		}
	}
}

// The broker is killed twice in the middle of a thousand messages, and started again: none is lost,
// and none is seen before an earlier one of its key.
func testRestart(t *testing.T, b *target) {
	topic := servertest.Prefix(t)
	b.create(t, topic)
	h := newHouse(t, sqlite())
	p := &acked{Publisher: b.publisher(t), changed: make(chan struct{})}
	start(t, h.relay(t, p, func(c *outbox.RelayConfig) {
		c.BatchSize, c.PublishTimeout = 50, 2*time.Second
		c.OnError = func(error) {} // there are many
	}))
	const keys, half = 20, 500
	committed := map[string]int{}
	for from := 0; from < 2*half; from += half {
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := from; i < from+half; i++ {
				m := numbered(fmt.Sprint("k", i%keys), i/keys)
				m.Topic = topic
				if !assert.NoError(t, h.insertIn(t.Context(), func() {}, m)) {
					return
				}
				committed[fmt.Sprint("k", i%keys)]++
				h.box.Notify()
			}
		})
		p.wait(t, from+half/4)
		b.kill(t)
		before, began := p.wait(t, 0), time.Now()
		assert.Less(t, before, from+half, "the kill came too late")
		b.start(t)
		producer.Wait()
		h.drained(t)
		t.Logf("%d were acknowledged before the kill, %d %v after it", before, p.wait(t, 0),
			time.Since(began))
	}
	tl := judge(b.received(t, topic), committed)
	t.Logf("%+v", tl)
	assert.Zero(t, tl.lost)
	assert.Zero(t, tl.inversions)
}

// testOneTooLarge has one message that the broker refuses: it alone is parked.
func testOneTooLarge(t *testing.T, b *target, topic string, p outbox.Publisher, size int) {
	h := newHouse(t, sqlite())
	box, err := outbox.New(outbox.Config{Dialect: outbox.SQLite, Table: h.table,
		MaxPayload: max(size, outbox.DefaultMaxPayload)})
	require.NoError(t, err)
	h.box = box
	committed := map[string]int{}
	var many []outbox.Message
	for i := range 60 {
		m := numbered(fmt.Sprint("k", i%12), i/12)
		m.Topic = topic
		many = append(many, m)
		committed[fmt.Sprint("k", i%12)] = 5
	}
	bad := outbox.Message{ID: "bad/0", Topic: topic, Key: []byte("k3"), Payload: random(size)}
	h.insert(t, append(append(many[:30:30], bad), many[30:]...)...)
	parked := make(chan outbox.Parked, 100)
	start(t, h.relay(t, p, func(c *outbox.RelayConfig) {
		c.MaxAttempts = 3
		c.OnPark = func(_ context.Context, p outbox.Parked) { parked <- p }
	}))
	got := <-parked
	assert.Equal(t, "bad/0", got.ID)
	want := 3
	if checker, ok := p.(outbox.Checker); ok && checker.Check(&bad) != nil {
		want = 1 // it was not sent
	}
	assert.Equal(t, want, got.Attempts)
	h.drained(t)
	assert.Empty(t, parked)
	assert.Equal(t, tally{}, judge(b.received(t, topic), committed))
}
