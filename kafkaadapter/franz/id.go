package franz

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter/internal/letter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// IDFunc finds the id of a message: what makes two deliveries the same message. It
// reports false when the message carries none. It must depend on nothing but the
// message, and is called by the goroutine that polls, so it must not wait. A message on
// which it panics cannot be processed, nor can one whose id is no key of a Deduper: 1-255
// bytes of printable UTF-8. [Hashed] makes one of any other.
type IDFunc func(*kgo.Record) (id string, ok bool)

// Header takes the id from the first of the named headers that is present with a
// non-empty value. Names are compared without regard to case. Of a header that is
// repeated the last counts, as with the Java client's lastHeader, so one that is empty at
// last is not there.
func Header(names ...string) IDFunc {
	return func(r *kgo.Record) (string, bool) { return msgid.First(headersOf(r), names) }
}

// DebeziumOutbox takes the id from the header "id" that Debezium's outbox event router
// sets for the purpose of removing duplicates.
func DebeziumOutbox() IDFunc { return Header("id") }

// CloudEvents takes the id from an event in the Kafka protocol binding of CloudEvents 1.0.
// An event's id is unique per source only, so both are joined; each must be present.
//
// In binary mode they are headers. In structured mode (a content-type of
// application/cloudevents+json) they are in the value, which is read through, but not
// decoded, beyond the two; a value that is not one JSON object, or has one of the two
// twice, has no id. An event has the same id in both modes. A batch of events is not one
// message and has no id. Of other structured formats only the headers are read, which
// they may have.
func CloudEvents() IDFunc {
	return func(r *kgo.Record) (string, bool) { return msgid.CloudEvents(headersOf(r), r.Value) }
}

// KafkaKey takes the message's key, if it has one that is not empty. Use it only where the
// producer makes a key for each event. Usually a key names an entity, such as a customer:
// then every update of it after the first is taken for a duplicate, and dropped, for the
// whole window.
func KafkaKey() IDFunc {
	return func(r *kgo.Record) (string, bool) { return string(r.Key), len(r.Key) > 0 }
}

// FirstOf takes the first id that one of the functions finds.
func FirstOf(funcs ...IDFunc) IDFunc {
	return func(r *kgo.Record) (string, bool) {
		for _, f := range funcs {
			if id, ok := f(r); ok {
				return id, true
			}
		}
		return "", false
	}
}

// Hashed makes a usable id of every id that f finds, except an empty one: one that a
// Deduper does not take, because it is binary or longer than 255 bytes, becomes "sha256:"
// and its SHA-256 in hex. Other ids stay as they are, so records of before keep their
// keys. Different ids stay different: one that begins with "sha256:" itself is hashed, too.
//
// The id of a dead letter that was sent back is taken as it is, before f is asked. A check
// of the id costs as much as its digest, some 100 ns.
func Hashed(f IDFunc) IDFunc {
	replayed := Replayed()
	return func(r *kgo.Record) (string, bool) {
		if id, ok := replayed(r); ok && msgid.IsKey(id) {
			return id, true
		}
		id, ok := f(r)
		if !ok {
			return id, false
		}
		return msgid.Hashed(id), true
	}
}

// DefaultID looks for a dead letter that was sent back, then for a "message-id" or
// "idempotency-key" header, then for CloudEvents. The Kafka key is not an id: it names an
// entity, and using it would drop every second update of it.
func DefaultID() IDFunc {
	return FirstOf(Replayed(), Header("message-id", "idempotency-key"), CloudEvents())
}

// headersOf finds the headers of a message.
func headersOf(r *kgo.Record) msgid.Headers {
	return func(name string) string { return lastHeader(r, name) }
}

func lastHeader(r *kgo.Record, name string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if h := &r.Headers[i]; strings.EqualFold(h.Key, name) {
			return string(h.Value)
		}
	}
	return ""
}

// idOf finds the id of a message, or what is wrong with it.
func (c *Config) idOf(r *kgo.Record, topic [16]byte, scope *letter.TopicScope) (id string,
	err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("franz: Config.ID panicked: %v", v)
		}
	}()
	id, ok := c.ID(r)
	if ok {
		return id, nil
	}
	if id, ok = scope.Fallback(headersOf(r)); ok {
		return id, nil
	}
	if hook := c.Observer.MissingID; hook != nil {
		hook(r)
	}
	if c.Positions {
		id, ok = position(r, topic)
	}
	if !ok && !c.Unclaimed {
		return id, ErrNoID
	}
	return id, nil
}

// position is the id of a message which has no other.
func position(r *kgo.Record, topic [16]byte) (string, bool) {
	if id, ok := letter.Replayed(headersOf(r), r.Topic); ok {
		return id, true
	}
	uuid := msgid.TopicID(topic)
	return msgid.Position(uuid, r.Partition, r.Offset, r.Timestamp), uuid != ""
}
