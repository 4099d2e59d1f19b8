package kafkaadapter

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// IDFunc finds the id of a message: what makes two deliveries the same message. It
// reports false when the message carries none. It must depend on nothing but the
// message, and is called concurrently. A message on which it panics cannot be processed,
// nor can one whose id is no key of a Deduper: 1-255 bytes of printable UTF-8. [Hashed]
// makes one of any other.
type IDFunc func(*sarama.ConsumerMessage) (id string, ok bool)

// Header takes the id from the first of the named headers that is present with a
// non-empty value. Names are compared without regard to case. Of a header that is
// repeated the last counts, as with the Java client's lastHeader, so one that is empty at
// last is not there.
func Header(names ...string) IDFunc {
	return func(m *sarama.ConsumerMessage) (string, bool) {
		return msgid.First(headersOf(m), names)
	}
}

// DebeziumOutbox takes the id from the header "id" that Debezium's outbox event router
// sets for the purpose of removing duplicates.
func DebeziumOutbox() IDFunc { return Header("id") }

// KafkaKey takes the message's key, if it has one that is not empty. Use it only where the
// producer makes a key for each event. Usually a key names an entity, such as a customer:
// then every update of it after the first is taken for a duplicate, and dropped, for the
// whole window.
func KafkaKey() IDFunc {
	return func(m *sarama.ConsumerMessage) (string, bool) { return string(m.Key), len(m.Key) > 0 }
}

// FirstOf takes the first id that one of the functions finds.
func FirstOf(funcs ...IDFunc) IDFunc {
	return func(m *sarama.ConsumerMessage) (string, bool) {
		for _, f := range funcs {
			if id, ok := f(m); ok {
				return id, true
			}
		}
		return "", false
	}
}

// DefaultID looks for a dead letter that was sent back, then for a "message-id" or
// "idempotency-key" header, then for CloudEvents. The Kafka key is not an id: it names an
// entity, and using it would drop every second update of it.
func DefaultID() IDFunc {
	return FirstOf(Replayed(), Header("message-id", "idempotency-key"), CloudEvents())
}

// headersOf finds the headers of a message.
func headersOf(m *sarama.ConsumerMessage) msgid.Headers {
	return func(name string) string { return lastHeader(m, name) }
}

func lastHeader(m *sarama.ConsumerMessage, name string) string {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if h := m.Headers[i]; h != nil && strings.EqualFold(string(h.Key), name) {
			return string(h.Value)
		}
	}
	return ""
}

// idOf finds the id of a message, or what is wrong with it.
func (a *Adapter) idOf(m *sarama.ConsumerMessage, from *source) (id string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kafkaadapter: Config.ID panicked: %v", v)
		}
	}()
	id, ok := a.cfg.ID(m)
	if ok {
		return id, nil
	}
	if id, ok = from.scope.Fallback(headersOf(m)); ok {
		return id, nil
	}
	if hook := a.cfg.Observer.MissingID; hook != nil {
		hook(m)
	}
	if a.cfg.Positions != nil {
		id, ok = a.cfg.Positions.id(m)
	}
	if !ok && !a.cfg.Unclaimed {
		return id, ErrNoID
	}
	return id, nil
}
