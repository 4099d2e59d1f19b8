package kafkaadapter

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// headers makes a message of names and values; the value "nil" stands for none.
func headers(pairs ...string) *sarama.ConsumerMessage {
	m := &sarama.ConsumerMessage{Key: []byte("entity")}
	for i := 0; i < len(pairs); i += 2 {
		h := &sarama.RecordHeader{Key: []byte(pairs[i])}
		if pairs[i+1] != "nil" {
			h.Value = []byte(pairs[i+1])
		}
		m.Headers = append(m.Headers, h)
	}
	return m
}

func TestIDs(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	withNil := headers("message-id", "1")
	withNil.Headers = append(withNil.Headers, nil, &sarama.RecordHeader{},
		&sarama.RecordHeader{Value: []byte("nameless")})
	for _, c := range []struct {
		name string
		find IDFunc
		m    *sarama.ConsumerMessage
		want string // "" for none
	}{
		{"header", Header("message-id"), headers("message-id", "1"), "1"},
		{"header of another case", Header("Message-ID"), headers("message-id", "1"), "1"},
		{"first name that is there", Header("a", "b"), headers("b", "2", "a", "1"), "1"},
		{"second name", Header("a", "b"), headers("b", "2"), "2"},
		{"no headers", Header("a"), headers(), ""},
		{"no names", Header(), headers("a", "1"), ""},
		{"repeated: the last", Header("a"), headers("a", "1", "a", "2"), "2"},
		{"repeated: nil at last", Header("a"), headers("a", "1", "a", "nil"), ""},
		{"empty value", Header("a"), headers("a", ""), ""},
		{"empty value, second name", Header("a", "b"), headers("a", "", "b", "2"), "2"},
		{"nil value", Header("a"), headers("a", "nil"), ""},
		{"nil header, and one of nothing", Header("message-id"), withNil, "1"},
		{"huge value, refused later", Header("a"), headers("a", huge), huge},
		{"repeated: an empty one first", Header("a"), headers("a", "", "a", "2"), "2"},
		{"repeated in another case", Header("a"), headers("a", "1", "A", "2"), "2"},
		{"key", KafkaKey(), headers(), "entity"},
		{"nil key", KafkaKey(), &sarama.ConsumerMessage{}, ""},
		{"empty key", KafkaKey(), &sarama.ConsumerMessage{Key: []byte{}}, ""},
		{"binary key", KafkaKey(), &sarama.ConsumerMessage{Key: []byte{0, 255}}, "\x00\xff"},
		{"CloudEvents", CloudEvents(), headers("ce_id", "7", "ce_source", "/shop"), "/shop 7"},
		{"CloudEvents without source", CloudEvents(), headers("ce_id", "7"), ""},
		{"CloudEvents without id", CloudEvents(), headers("ce_source", "/shop"), ""},
		{"CloudEvents with an empty id", CloudEvents(),
			headers("ce_source", "/shop", "ce_id", ""), ""},
		{"CloudEvents with spaces", CloudEvents(), headers("ce_source", "a b", "ce_id", "c d"),
			"a%20b c d"},
		{"Debezium", DebeziumOutbox(), headers("id", "u-1"), "u-1"},
		{"first of", FirstOf(Header("a"), CloudEvents()),
			headers("ce_id", "7", "ce_source", "/shop"), "/shop 7"},
		{"first of, in order", FirstOf(Header("b"), Header("a")), headers("a", "1", "b", "2"), "2"},
		{"first of none", FirstOf(), headers("a", "1"), ""},
		{"default: message-id", DefaultID(),
			headers("idempotency-key", "2", "message-id", "1"), "1"},
		{"default: idempotency-key", DefaultID(), headers("Idempotency-Key", "2"), "2"},
		{"default: CloudEvents", DefaultID(), headers("ce_id", "7", "ce_source", "/shop"),
			"/shop 7"},
		{"default: never the key", DefaultID(), headers(), ""},
	} {
		id, ok := c.find(c.m)
		if id != c.want || ok != (c.want != "") {
			t.Errorf("%s: found %.20q, %v, want %.20q", c.name, id, ok, c.want)
		}
	}
}

// An adapter tells of every message without an id, whatever becomes of it.
func TestMissingIDIsTold(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"parked": func(c *Config) {
			c.Park = func(context.Context, *Message, error) error { return nil }
		},
		"positioned": func(c *Config) { c.Positions = positionsOf(t, "u") },
		"unclaimed":  func(c *Config) { c.Unclaimed = true },
	} {
		t.Run(name, func(t *testing.T) {
			var missing []int64
			inBubble(t, 1, nil, func(r *rig, c *Config) {
				r.group.finished = nil
				c.Observer.MissingID = func(m *sarama.ConsumerMessage) {
					missing = append(missing, m.Offset)
				}
				change(c)
			}, func(r *rig) {
				r.group.add(message("a", ""), &sarama.ConsumerMessage{Key: []byte("k")},
					message("b", ""))
				r.after(time.Second)
				r.wantCommitted(3)
			})
			if !slices.Equal(missing, []int64{1}) {
				t.Errorf("told of %v, want 1", missing)
			}
		})
	}
}
