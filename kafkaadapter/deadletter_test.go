package kafkaadapter

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// fakeProducer keeps letters, unless fail returns an error.
type fakeProducer struct {
	fail    func(*Message) error
	letters []*Message
}

// Send implements Producer.
func (p *fakeProducer) Send(_ context.Context, m *Message) error {
	if p.fail != nil {
		if err := p.fail(m); err != nil {
			return err
		}
	}
	p.letters = append(p.letters, m)
	return nil
}

// send sends the dead letter of a message.
func (p *fakeProducer) send(ctx context.Context, t *testing.T, m *Message, reason error) error {
	t.Helper()
	park, err := DeadLetters(DeadLetterConfig{Producer: p, Topic: func(m *Message) string {
		return m.Topic + ".dead"
	}})
	require.NoError(t, err)
	return park(ctx, m, reason)
}

func TestDeadLetterIsTheMessageAndItsStory(t *testing.T) {
	for name, row := range map[string]struct{ key, value []byte }{
		"key and value": {[]byte("k"), []byte("v")},
		"tombstone":     {[]byte("k"), nil},
		"empty":         {[]byte{}, []byte{}},
		"no key":        {nil, []byte("v")},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			m := &Message{ID: "id7", Scope: "billing/first", FirstTopic: "first", Attempt: 3,
				Topic: "charges", Partition: 2, Offset: 7, Key: row.key, Value: row.value,
				Timestamp: time.UnixMilli(1_700_000_000_123),
				headers: Headers{{"Trace", []byte("a")}, {"Trace", nil},
					{"Onceward-Error", []byte("an older death")}}}
			require.NoError(t, p.send(t.Context(), t, m, errors.New(strings.Repeat("é", 1000))))
			got := p.letters[0]
			assert.Equal(t, "charges.dead", got.Topic)
			assert.Equal(t, row.key, got.Key, "nil is not empty")
			assert.Equal(t, row.value, got.Value, "a tombstone stays one")
			for key, want := range map[string]string{
				HeaderID: "id7", HeaderScope: "billing/first", HeaderFirstTopic: "first",
				HeaderTopic: "charges", HeaderPartition: "2", HeaderOffset: "7",
				HeaderAttempts:  "3",
				HeaderTimestamp: "2023-11-14T22:13:20.123Z", HeaderError: strings.Repeat("é", 512),
			} {
				assert.Equal(t, want, got.Header(key), key)
			}
			assert.Len(t, got.Headers(), 2+9)
			assert.Equal(t, m.headers[:2], got.Headers()[:2])
		})
	}
}

// A letter that is too large for the topic is sent without its value, and a header says so. A key
// or header that is too large is left out, too, so that the message does not block its key forever.
func TestDeadLetterThatIsTooLarge(t *testing.T) {
	size := func(m *Message) (n int) {
		for _, h := range m.Headers() {
			n += len(h.Key) + len(h.Value)
		}
		return n + len(m.Key) + len(m.Value)
	}
	huge := strings.Repeat("x", 1<<20)
	for name, row := range map[string]struct {
		m    *Message
		kept string // its own header
	}{
		"value": {&Message{Value: []byte(huge), Key: []byte("k"),
			headers: Headers{{"h", []byte("a")}}}, "a"},
		"header": {&Message{Value: []byte("v"), headers: Headers{{"h", []byte(huge)}}}, ""},
		"key":    {&Message{Key: []byte(huge), headers: Headers{{"h", []byte("a")}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.m.Topic, row.m.ID = "t", "id"
			p := &fakeProducer{fail: func(m *Message) error {
				if size(m) > 1<<20 {
					return ErrTooLarge
				}
				return nil
			}}
			require.NoError(t, p.send(t.Context(), t, row.m, errBroken))
			got := p.letters[0]
			assert.Equal(t, []byte{}, got.Value, "empty, and not a tombstone")
			assert.Equal(t, strconv.Itoa(len(row.m.Value)), got.Header(HeaderTooLarge))
			assert.Equal(t, "id", got.Header(HeaderID))
			assert.Equal(t, row.kept, got.Header("h"))
			if row.kept != "" {
				assert.Equal(t, row.m.Key, got.Key)
			}
		})
	}
}

// Nothing is sent when the partition is already given up.
func TestDeadLetterEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	p := &fakeProducer{}
	require.ErrorIs(t, p.send(ctx, t, &Message{Topic: "t"}, dedup.ErrMismatch), errBroken)
	assert.Empty(t, p.letters)
}

func TestDeadLetterConfigIsChecked(t *testing.T) {
	topic := func(*Message) string { return "" }
	for field, cfg := range map[string]DeadLetterConfig{
		"Producer": {Topic: topic},
		"Topic":    {Producer: &fakeProducer{}},
	} {
		_, err := DeadLetters(cfg)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, "kafkaadapter.DeadLetterConfig."+field, input.Field)
	}
	park, err := DeadLetters(DeadLetterConfig{Producer: &fakeProducer{}, Topic: topic})
	require.NoError(t, err)
	require.Error(t, park(t.Context(), &Message{}, errBroken), "a letter to no topic was sent")
}

// newDeduper is a Deduper over a store in memory.
func newDeduper(t *testing.T) *dedup.Deduper {
	t.Helper()
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	return d
}

func TestReplayRefusesWhatIsNoLetter(t *testing.T) {
	d := newDeduper(t)
	held, err := d.Claim(t.Context(), "held", dedup.WithScope("billing/t"))
	require.NoError(t, err)
	for name, row := range map[string]struct {
		m    *Message
		want error
	}{
		"no position": {headers(HeaderID, "x"), ErrNoDeadLetter},
		"no value":    {headers(HeaderTopic, "t", HeaderTooLarge, "9"), ErrNoDeadLetter},
		"in flight": {headers(HeaderTopic, "t", HeaderID, "held", HeaderScope, "billing/t"),
			dedup.ErrInFlight},
		"never heard of": {headers(HeaderTopic, "t", HeaderID, "x", HeaderScope, "billing/t"),
			ErrNoRecord},
		"without an id": {headers(HeaderTopic, "t"), nil},
	} {
		_, err := Replay(t.Context(), d, row.m)
		assert.ErrorIs(t, err, row.want, name)
	}
	_, err = Replay(t.Context(), d, nil)
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	require.NoError(t, held.Release(t.Context()))
}

// Replay returns the key, value and headers of the letter, for the topic of the original message.
func TestReplayedLetterIsTheMessage(t *testing.T) {
	for name, value := range map[string][]byte{"value": []byte("v"), "tombstone": nil} {
		letter := headers("trace", "a", HeaderTopic, "charges")
		letter.Topic, letter.Partition, letter.Offset, letter.Value = "dead", 3, 9, value
		back, err := Replay(t.Context(), newDeduper(t), letter)
		require.NoError(t, err)
		want := &Message{Topic: "charges", Key: letter.Key, Value: value, headers: letter.headers}
		assert.Equal(t, want, back, name)
	}
}

// Replay does not forget a key that is being retried after an earlier replay: it could succeed
// between Lookup and Forget. It forgets a key that was given up.
func TestReplayLeavesRetriesAlone(t *testing.T) {
	for name, row := range map[string]struct{ letter, attempts, kept int }{
		"tried again":    {letter: 3, attempts: 2, kept: 2},
		"given up":       {letter: 3, attempts: 3, kept: 0},
		"given up again": {letter: 3, attempts: 4, kept: 0},
	} {
		d := newDeduper(t)
		for range row.attempts {
			c, err := d.Claim(t.Context(), "x")
			require.NoError(t, err)
			require.NoError(t, c.Release(t.Context()))
		}
		_, err := Replay(t.Context(), d, headers(HeaderID, "x", HeaderTopic, "t",
			HeaderAttempts, strconv.Itoa(row.letter)))
		require.NoError(t, err, name)
		rec, err := d.Lookup(t.Context(), "x")
		require.NoError(t, err, name)
		assert.Equal(t, row.kept, rec.Attempt, name)
	}
}

// A letter without its value that is parked from a retry topic keeps its headers, which say where
// the value is.
func TestLetterWithoutItsValueKeepsItsHeaders(t *testing.T) {
	p := &fakeProducer{}
	m := headers("trace", "a", HeaderTopic, "orders", HeaderOffset, "7", HeaderTooLarge, "5000")
	m.Topic, m.Offset, m.ID = "retry", 99, "id"
	require.NoError(t, p.send(t.Context(), t, m, ErrNoDeadLetter))
	assert.Equal(t, m.headers, p.letters[0].Headers())
}
