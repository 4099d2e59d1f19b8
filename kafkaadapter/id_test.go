package kafkaadapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var errBroken = errors.New("broken")

// headers makes a message of names and values; the value "nil" stands for none.
func headers(pairs ...string) *Message {
	m := &Message{Key: []byte("entity")}
	for i := 0; i < len(pairs); i += 2 {
		h := Header{Key: pairs[i]}
		if pairs[i+1] != "nil" {
			h.Value = []byte(pairs[i+1])
		}
		m.headers = append(m.headers, h)
	}
	return m
}

func TestIDs(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name string
		find IDFunc
		m    *Message
		want string // "" for none
	}{
		{"header", FromHeader("message-id"), headers("message-id", "1"), "1"},
		{"header of another case", FromHeader("Message-ID"), headers("message-id", "1"), "1"},
		{"first name that is there", FromHeader("a", "b"), headers("b", "2", "a", "1"), "1"},
		{"second name", FromHeader("a", "b"), headers("b", "2"), "2"},
		{"no headers", FromHeader("a"), headers(), ""},
		{"no names", FromHeader(), headers("a", "1"), ""},
		{"repeated: the last", FromHeader("a"), headers("a", "1", "a", "2"), "2"},
		{"repeated: nil at last", FromHeader("a"), headers("a", "1", "a", "nil"), ""},
		{"empty value", FromHeader("a"), headers("a", ""), ""},
		{"empty value, second name", FromHeader("a", "b"), headers("a", "", "b", "2"), "2"},
		{"nil value", FromHeader("a"), headers("a", "nil"), ""},
		{"a header without a name", FromHeader("message-id"),
			headers("message-id", "1", "", "nil", "", "nameless"), "1"},
		{"huge value, refused later", FromHeader("a"), headers("a", huge), huge},
		{"repeated: an empty one first", FromHeader("a"), headers("a", "", "a", "2"), "2"},
		{"repeated in another case", FromHeader("a"), headers("a", "1", "A", "2"), "2"},
		{"key", KafkaKey(), headers(), "entity"},
		{"nil key", KafkaKey(), &Message{}, ""},
		{"empty key", KafkaKey(), &Message{Key: []byte{}}, ""},
		{"binary key", KafkaKey(), &Message{Key: []byte{0, 255}}, "\x00\xff"},
		{"CloudEvents", CloudEvents(), headers("ce_id", "7", "ce_source", "/shop"), "/shop 7"},
		{"CloudEvents without source", CloudEvents(), headers("ce_id", "7"), ""},
		{"CloudEvents without id", CloudEvents(), headers("ce_source", "/shop"), ""},
		{"CloudEvents with an empty id", CloudEvents(),
			headers("ce_source", "/shop", "ce_id", ""), ""},
		{"CloudEvents with spaces", CloudEvents(), headers("ce_source", "a b", "ce_id", "c d"),
			"a%20b c d"},
		{"Debezium", DebeziumOutbox(), headers("id", "u-1"), "u-1"},
		{"first of", FirstOf(FromHeader("a"), CloudEvents()),
			headers("ce_id", "7", "ce_source", "/shop"), "/shop 7"},
		{"first of, in order", FirstOf(FromHeader("b"), FromHeader("a")),
			headers("a", "1", "b", "2"), "2"},
		{"first of none", FirstOf(), headers("a", "1"), ""},
		{"default: message-id", DefaultID(),
			headers("idempotency-key", "2", "message-id", "1"), "1"},
		{"default: idempotency-key", DefaultID(), headers("Idempotency-Key", "2"), "2"},
		{"default: CloudEvents", DefaultID(), headers("ce_id", "7", "ce_source", "/shop"),
			"/shop 7"},
		{"default: never the key", DefaultID(), headers(), ""},
	} {
		id, ok := c.find(c.m)
		assert.True(t, id == c.want && ok == (c.want != ""), "%s: found %.20q, %v, want %.20q",
			c.name, id, ok, c.want)
	}
}

// DefaultID uses HeaderID only in the topic that HeaderTopic names.
func TestReplayedID(t *testing.T) {
	m := headers("message-id", "own", HeaderID, "letter", HeaderTopic, "charges")
	for topic, want := range map[string]string{"charges": "letter", "refunds": "own"} {
		m.Topic = topic
		id, ok := DefaultID()(m)
		assert.True(t, ok)
		assert.Equal(t, want, id, "in "+topic)
	}
}

// stubReader's Last returns its arguments. Its All returns Headers, and one more named raw.
type stubReader struct{ Headers }

func (stubReader) Last(raw any, name string) ([]byte, bool) {
	return fmt.Append(nil, raw, " ", name), true
}

func (r stubReader) All(raw any) Headers {
	return append(slices.Clone(r.Headers), Header{fmt.Sprint(raw), nil})
}

// Header reads a driver's headers from Raw until Headers is called, and then from the converted
// ones. SetHeaders replaces them.
func TestHeadersAreReadWhenAskedFor(t *testing.T) {
	m := &Message{Raw: "raw"}
	m.ReadHeaders(stubReader{Headers{{"a", []byte("1")}}})
	assert.Equal(t, "raw b", m.Header("b"), "one header needs no conversion")
	assert.Equal(t, Headers{{"a", []byte("1")}, {"raw", nil}}, m.Headers())
	assert.Empty(t, m.Header("b"))
	assert.Equal(t, "1", m.Header("A"))
	m.SetHeaders(Headers{{"b", []byte("2")}})
	assert.Equal(t, "2", m.Header("b"))
	assert.Empty(t, m.Header("a"))
}
