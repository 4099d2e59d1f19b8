package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// shapes are messages, most of them unusual. The index of each is its offset. An empty id means
// that the message has no valid id.
var shapes = []struct {
	name string
	record
}{
	{"an ordinary one", record{id: "plain", key: "k", value: []byte("v")}},
	{"a repeated header: the last counts",
		record{id: "last", key: "k", value: []byte("v"), headers: []header{
			{"message-id", []byte("first")}, {"Message-Id", []byte("last")},
		}}},
	{"another header of an id",
		record{id: "idempotent", key: "k", value: []byte("v"), headers: []header{
			{"idempotency-key", []byte("idempotent")},
		}}},
	{"a header that is nil at last", record{key: "k", value: []byte("v"), headers: []header{
		{"message-id", []byte("first")}, {"message-id", nil},
	}}},
	{"no header", record{key: "k", value: []byte("v"), headers: []header{}}},
	{"an id that is too long", record{key: "k", value: []byte("v"), headers: []header{
		{"message-id", bytes.Repeat([]byte("x"), 300)},
	}}},
	{"a huge header beside the id",
		record{id: "heavy", key: "k", value: []byte("v"), headers: []header{
			{"trace", bytes.Repeat([]byte("x"), 100<<10)}, {"message-id", []byte("heavy")},
		}}},
	{"a tombstone", record{id: "tombstone", key: "k"}},
	{"an empty value", record{id: "empty", key: "k", value: []byte{}}},
	{"no key", record{id: "keyless", value: []byte("v")}},
	{"a value larger than what is fetched at once",
		record{id: "large", key: "k", value: bytes.Repeat([]byte("x"), 900<<10)}},
	{"one behind it", record{id: "behind", key: "k", value: []byte("v")}},
	{"one that was sent before", record{id: "plain", key: "other", value: []byte("v")}},
}

// Messages of every shape are handled once as they were sent, and those without a valid id are
// parked.
func TestMessagesOfEveryShape(t *testing.T) { eachFlavor(t, messagesOfEveryShape) }

func messagesOfEveryShape(t *testing.T, f flavor) {
	s := f.scene(t, 3, 1).nobodyDies()
	for _, shape := range shapes {
		s.produce(shape.record)
	}
	var mu sync.Mutex
	handled, parked := map[int64]*kafkaadapter.Message{}, map[int64]error{}
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		mu.Lock()
		defer mu.Unlock()
		handled[m.Offset] = m
		return nil
	}, func(mc *memberConfig) {
		mc.fetch = 1 << 10
		mc.Park = func(_ context.Context, m *kafkaadapter.Message, reason error) error {
			mu.Lock()
			defer mu.Unlock()
			parked[m.Offset] = reason
			return nil
		}
	})
	s.wantAll(15*time.Second, m)
	mu.Lock()
	defer mu.Unlock()
	for i, shape := range shapes {
		got, reason := handled[int64(i)], parked[int64(i)]
		again := i > 0 && shape.id == shapes[0].id
		switch {
		case shape.id == "" && (got != nil || reason == nil), shape.id != "" && reason != nil,
			again && got != nil:
			t.Errorf("%s: handled %v, parked for %v", shape.name, got != nil, reason)
		case shape.id == "" || again:
		case got == nil:
			t.Errorf("%s: not handled", shape.name)
		case got.ID != shape.id || string(got.Key) != shape.key ||
			!bytes.Equal(got.Value, shape.value) || (got.Value == nil) != (shape.value == nil):
			t.Errorf("%s: id %q, key %q, %d bytes (nil: %v)", shape.name, got.ID, got.Key,
				len(got.Value), got.Value == nil)
		}
	}
}

// A message that cannot be processed, and that nobody parks, stops the consumer with an
// error that names it. The messages before it are committed, and it is not.
func TestNothingIsSkippedInSilence(t *testing.T) { eachFlavor(t, nothingIsSkippedInSilence) }

func nothingIsSkippedInSilence(t *testing.T, f flavor) {
	const before = 5
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, before)...)
	s.produce(record{key: "k", value: []byte("v"), headers: []header{}})
	s.produce(numbered(0, before, 5)...)
	m := s.join(nil)
	err := waitFor(t, m.done, "the consumer goes on")
	var message *kafkaadapter.UnprocessableError
	require.ErrorAs(t, err, &message)
	assert.Equal(t, int64(before), message.Offset, "%v", err)
	_ = m.close()
	assert.Equal(t, int64(before), s.committed(0), "what is committed")
	s.wantNothingLeft()
}

// A message with a used id and another value is another message. It is parked, and not skipped as a
// duplicate of the first one.
func TestMismatchIsParked(t *testing.T) { eachFlavor(t, mismatchIsParked) }

func mismatchIsParked(t *testing.T, f flavor) {
	s := f.scene(t, 3, 2).nobodyDies()
	s.produce(
		record{id: "a", partition: 0, key: "k", value: []byte("one")},
		record{id: "a", partition: 0, key: "k", value: []byte("one")},
		record{id: "a", partition: 0, key: "k", value: []byte("two")},
	)
	var parked atomic.Int64
	m := s.join(nil, func(mc *memberConfig) {
		mc.Fingerprint = true
		mc.Park = func(context.Context, *kafkaadapter.Message, error) error {
			parked.Add(1)
			return nil
		}
	})
	s.wantAll(10*time.Second, m)
	assert.Equal(t, int64(1), parked.Load(), "messages that were parked")
}

// Handlers panic and fail. Their messages are handled again, then the others of their key. The
// messages of other keys do not wait for them.
func TestHandlersPanic(t *testing.T) { eachFlavor(t, handlersPanic) }

func handlersPanic(t *testing.T, f flavor) {
	const n = 100
	s := f.scene(t, 3, 1).nobodyDies()
	records := numbered(0, 0, n)
	for i := range records {
		records[i].key = fmt.Sprint("k", i%10)
	}
	s.produce(records...)
	var tries atomic.Int64
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		tries.Add(1)
		switch {
		case m.Offset%7 == 0 && m.Attempt < 3:
			_ = m.Value[len(m.Value)] // a bug of the handler's
		case m.Offset%7 == 1 && m.Attempt == 1:
			panic("boom")
		case m.Offset%7 == 2 && m.Attempt < 3:
			return errors.New("not this time")
		}
		return nil
	})
	s.wantAll(20*time.Second, m)
	assert.Greater(t, tries.Load(), int64(n), "nothing failed")
}

// Messages of about the largest size that the topic takes come with a small fetch size. They hold
// up only the messages behind them.
func TestLargestMessages(t *testing.T) { eachFlavor(t, largestMessages) }

func largestMessages(t *testing.T, f flavor) {
	const n = 8
	s := f.scene(t, 1, 2).nobodyDies()
	for i := range n {
		large := numbered(0, 2*i, 1)
		large[0].value = []byte(strings.Repeat("x", 1_000_000))
		s.produce(large...)
		s.produce(numbered(0, 2*i+1, 1)...)
	}
	s.produce(numbered(1, 1000, 200)...)
	m := s.join(nil, func(mc *memberConfig) { mc.fetch = 512 })
	s.wantAll(20*time.Second, m)
}
