package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

var (
	errDown     = errors.New("broker is down")
	errTooLarge = outbox.Reject(errors.New("too large"))
)

// few makes the relay's batches small, so that failing messages and later ones are in different
// batches.
func few(c *outbox.RelayConfig) { c.BatchSize, c.Workers = 10, 1 }

// A message that fails for a while holds up its own key and no other, not even one whose messages
// are behind more of the failing key than a batch takes. When it succeeds, everything is published
// in order.
func TestOneKeyFails(t *testing.T) {
	for _, careless := range []bool{false, true} {
		t.Run(map[bool]string{false: "careful publisher", true: "careless publisher"}[careless],
			func(t *testing.T) {
				forEach(t, func(t *testing.T, e engine) { testOneKeyFails(t, e, careless) })
			})
	}
}

func testOneKeyFails(t *testing.T, e engine, careless bool) {
	h := newHouse(t, e)
	var broken atomic.Bool
	broken.Store(true)
	b := newBroker()
	b.careless = careless
	b.fail = func(m outbox.Message) error {
		if broken.Load() && m.ID == "a/1" {
			return errDown
		}
		return nil
	}
	h.insert(t, numbered("a", 0), numbered("a", 1), numbered("a", 2))
	var overtaken atomic.Int64
	r := h.relay(t, b, few, func(c *outbox.RelayConfig) {
		c.MaxAttempts = 1 // a broker that refuses nothing parks nothing
		c.OnError = func(err error) {
			if errors.Is(err, outbox.ErrOvertaken) {
				overtaken.Add(1)
			}
		}
	})
	start(t, r)
	eventually(t, "it has failed twice", func() bool { return r.Stats().Failures >= 2 })
	var many []outbox.Message
	for i := range 40 {
		many = append(many, numbered("a", 3+i))
	}
	// The same shard: another topic of the same key.
	many = append(many, outbox.Message{ID: "other/0", Topic: "other", Key: []byte("a")},
		numbered("b", 0))
	h.insert(t, many...)
	eventually(t, "the others are published", func() bool {
		got, _ := b.got()
		return judge(got, map[string]int{"a": 1, "b": 1, "other": 1}).lost == 0
	})
	got, _ := b.got()
	for _, m := range got {
		late := strings.HasPrefix(m.ID, "a/") && m.ID != "a/0" && (!careless || m.ID != "a/2")
		assert.False(t, late, "%s was published before a/1", m.ID)
	}
	broken.Store(false)
	h.drained(t)
	got, _ = b.got()
	want := tally{}
	if careless { // it was reported, and the message was published again in its place
		want = tally{duplicates: 1, inversions: 1}
		assert.EqualValues(t, 1, overtaken.Load())
		assert.EqualValues(t, 1, r.Stats().Overtaken)
	}
	tl := judge(got, map[string]int{"a": 43, "b": 1, "other": 1})
	assert.Equal(t, want, tl)
}

// A message that the broker rejects is parked after MaxAttempts and reported, and the messages
// behind it are published. Requeued, it comes under its own id.
func TestParked(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		var fixed atomic.Bool
		var tries atomic.Int64
		b.fail = func(m outbox.Message) error {
			if m.ID == "a/1" && !fixed.Load() {
				tries.Add(1)
				return fmt.Errorf("wrapped \x00\xff: %w", errTooLarge)
			}
			return nil
		}
		bad := numbered("a", 1)
		bad.Headers = []outbox.Header{{Key: "h", Value: []byte("v")}}
		h.insert(t, numbered("a", 0), bad, numbered("a", 2))
		told := make(chan outbox.Parked, 10)
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.MaxAttempts = 3
			c.OnPark = func(_ context.Context, p outbox.Parked) { told <- p }
		}))
		p := <-told
		b.wait(t, 2)
		h.drained(t)
		// A call of fail for the check, and one for the result.
		assert.Equal(t, "a/1", p.ID)
		assert.EqualValues(t, 3, p.Attempts)
		assert.EqualValues(t, 6, tries.Load())
		assert.Contains(t, p.Reason, "too large")
		assert.Len(t, p.Headers, 1)
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.Equal(t, outbox.Lag{Parked: 1}, lag)
		list, err := h.box.Parked(t.Context(), h.db, 0, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		got := list[0]
		assert.Equal(t, p.Row, got.Row)
		assert.Equal(t, p.ID, got.ID)
		assert.Equal(t, p.Reason, got.Reason)
		assert.EqualValues(t, 3, got.Attempts)
		assert.Equal(t, "a/1", string(got.Payload))
		assert.Len(t, got.Headers, 1)
		assert.LessOrEqual(t, time.Since(got.Created), patience)
		assert.False(t, got.At.Before(got.Created), "Parked = %+v, told of %+v", got, p)
		after, err := h.box.Parked(t.Context(), h.db, p.Row, 10)
		require.NoError(t, err)
		assert.Len(t, after, 0)
		fixed.Store(true)
		for _, want := range []int{1, 0} {
			n, err := h.box.Requeue(t.Context(), h.db, p.Row, p.Row+1000)
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
		h.drained(t)
		last := b.wait(t, 3)[2]
		assert.Equal(t, "a/1", last.ID)
		assert.Len(t, last.Headers, 2)
	})
}

// A broker that is down parks nothing, however often it is tried, and when it returns nothing is
// lost.
func TestBrokerDown(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		var down atomic.Bool
		down.Store(true)
		b.before = func(context.Context, []outbox.Message) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		r := h.relay(t, b, few, func(c *outbox.RelayConfig) { c.MaxAttempts = 1 })
		start(t, r)
		for i := range 30 {
			h.insert(t, numbered(fmt.Sprint("k", i%3), i/3))
		}
		eventually(t, "it has failed ten times", func() bool { return r.Stats().Failures >= 10 })
		down.Store(false)
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, map[string]int{"k0": 10, "k1": 10, "k2": 10})
		assert.Equal(t, tally{}, tl)
	})
}

// A publisher that does not return holds up its shard until its deadline. No message is lost, and
// other shards continue.
func TestHangingPublisher(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		release := make(chan struct{})
		hangs := make(chan struct{}, 1)
		hangs <- struct{}{}
		b.before = func(_ context.Context, messages []outbox.Message) error {
			if messages[0].Topic != "hang" {
				return nil
			}
			select {
			case <-hangs:
				<-release
				return errDown
			default:
				return nil
			}
		}
		brief := func(c *outbox.RelayConfig) {
			c.PublishTimeout, c.Workers = 10*time.Millisecond, 2
		}
		first := h.relay(t, b, brief)
		h.insert(t, outbox.Message{ID: "a/0", Topic: "hang", Key: []byte("a")})
		start(t, first)
		eventually(t, "its deadline has passed", func() bool { return first.Stats().Failures > 0 })
		// another shard
		h.insert(t, outbox.Message{ID: "c/0", Topic: "t", Key: []byte("account-7")})
		b.wait(t, 1)
		second := h.relay(t, b, brief)
		start(t, second) // the lock is free: this relay gets the shard of the hanging one
		h.drained(t)
		close(release)
		got := b.wait(t, 2)
		// On a slow machine other calls, too, may miss such a deadline: those messages come twice.
		late := int(first.Stats().Failures + second.Stats().Failures - 1)
		tl := judge(got, map[string]int{"a": 1, "c": 1})
		assert.Zero(t, tl.lost)
		assert.Zero(t, tl.inversions)
		assert.LessOrEqual(t, tl.duplicates, late)
	})
}

// A call that does not end is left behind when StopTimeout is over, and reported.
func TestHeldUp(t *testing.T) {
	h := newHouse(t, sqlite())
	b := newBroker()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	b.before = func(context.Context, []outbox.Message) error { cancel(); <-release; return errDown }
	h.insert(t, numbered("a", 0))
	r := h.relay(t, b, func(c *outbox.RelayConfig) { c.StopTimeout = time.Millisecond })
	assert.ErrorIs(t, r.Run(ctx), outbox.ErrHeldUp)
}

// A relay does not start on tables of another version, nor twice.
func TestRunRefuses(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		r := h.relay(t, b)
		start(t, r)
		h.insert(t, numbered("a", 0))
		b.wait(t, 1)
		err := r.Run(t.Context())
		assert.ErrorContains(t, err, "running already")
		missing, err := outbox.New(outbox.Config{Dialect: e.dialect, Table: h.table + "_x"})
		require.NoError(t, err)
		err = h.relay(t, b, func(c *outbox.RelayConfig) { c.Outbox = missing }).Run(t.Context())
		assert.ErrorContains(t, err, "needs a migration")
	})
}
