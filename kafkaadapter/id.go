package kafkaadapter

import (
	"github.com/onceward/onceward/kafkaadapter/internal/deadletter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// IDFunc finds the id of a message: two deliveries with the same id are the same message. It
// reports false where the message has none. It must depend on the message alone, must not wait, and
// is called concurrently. A message on which it panics cannot be processed. Neither can a message
// whose id is not a valid key of a Deduper, which is 1 to 255 bytes of printable UTF-8; [Hashed]
// makes a key of any id.
type IDFunc func(m *Message) (id string, ok bool)

// FromHeader takes the id from the first of the named headers that is present and not empty. Names
// are compared without regard to case. Of a repeated header the last counts, as with lastHeader of
// the Java client.
func FromHeader(names ...string) IDFunc {
	return func(m *Message) (string, bool) { return msgid.First(m, names) }
}

// DebeziumOutbox takes the id from the header "id", which Debezium's outbox event router sets so
// that consumers can drop duplicates.
func DebeziumOutbox() IDFunc { return FromHeader("id") }

// KafkaKey takes the message's key, if there is one and it is not empty. Use it only where the
// producer makes a key for each event. Usually a key names an entity, such as a customer. Then
// every update after the first is dropped as a duplicate, for the whole window.
func KafkaKey() IDFunc {
	return func(m *Message) (string, bool) { return string(m.Key), len(m.Key) > 0 }
}

// CloudEvents takes the id of an event in the Kafka protocol binding of CloudEvents 1.0. An event's
// id is unique for its source only, so both are joined; both must be present.
//
// In binary mode they are headers. In structured mode (content-type application/cloudevents+json)
// they are in the value, which is scanned and not decoded. A value has no id if it is not one JSON
// object, or has an id or a source twice. An event has the same id in both modes. A batch of events
// is several messages and has no id. In other structured formats only headers are read.
func CloudEvents() IDFunc {
	return func(m *Message) (string, bool) { return msgid.CloudEvents(m, m.Value) }
}

// FirstOf takes the first id that one of the functions finds.
func FirstOf(funcs ...IDFunc) IDFunc {
	return func(m *Message) (string, bool) {
		for _, f := range funcs {
			if id, ok := f(m); ok {
				return id, true
			}
		}
		return "", false
	}
}

// Hashed makes a key of every id that f finds, except an empty one. An id that a Deduper refuses,
// because it is binary or longer than 255 bytes, becomes "sha256:" and its SHA-256 in hex. Other
// ids stay as they are, so their records are still found. Different ids stay different: an id that
// begins with "sha256:" itself is hashed, too.
//
// A dead letter that was sent back keeps its id, and f is not called. Checking an id takes some 100
// ns, as long as its digest.
func Hashed(f IDFunc) IDFunc {
	return func(m *Message) (string, bool) {
		if id, ok := deadletter.Replayed(m, m.Topic); ok && msgid.IsKey(id) {
			return id, true
		}
		id, ok := f(m)
		if !ok {
			return id, false
		}
		return msgid.Hashed(id), true
	}
}

// Replayed takes the id that a dead letter carries after it was sent back to the topic it came
// from. So the message does not look new, whatever finds the ids of other messages. In another
// topic the header is ignored, because there somebody has copied headers to a message of another
// kind.
//
// [DefaultID] begins with it. Put it in front of your own: FirstOf(Replayed(), yours).
func Replayed() IDFunc {
	return func(m *Message) (string, bool) { return deadletter.Replayed(m, m.Topic) }
}

// DefaultID looks for a dead letter that was sent back, then for a header "message-id" or
// "idempotency-key", then for CloudEvents. The Kafka key is not an id: it names an entity, and
// every update of it after the first would be dropped.
func DefaultID() IDFunc {
	return FirstOf(Replayed(), FromHeader("message-id", "idempotency-key"), CloudEvents())
}

// IDs returns the ids of the messages, in their order.
func IDs(ms []*Message) []string {
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	return ids
}

// ScopeOf is the scope of the keys of a topic's messages in a consumer group, where Config.Scope is
// empty: "group/topic", such as "billing/orders". If a Deduper does not accept that, because it is
// longer than 255 bytes or not printable, the scope is "sha256:" and a digest of both. The topic is
// the message's first one, see Message.FirstTopic.
//
// This call finds a message's record: d.Lookup(ctx, id, dedup.WithScope(ScopeOf(group, topic))).
func ScopeOf(group, topic string) string { return deadletter.ScopeOf(group, topic) }
