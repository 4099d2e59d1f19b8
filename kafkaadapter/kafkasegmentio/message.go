package kafkasegmentio

import (
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/kafkaadapter"
)

// Message makes a message of one that kafka-go has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(m kafka.Message) *kafkaadapter.Message {
	out := messageOf(m)
	return &out
}

func messageOf(m kafka.Message) kafkaadapter.Message {
	out := kafkaadapter.Message{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset,
		Key: m.Key, Value: m.Value, Timestamp: m.Time, Raw: m}
	out.ReadHeaders(headers{})
	return out
}

// headers reads the headers of a kafka.Message.
type headers struct{}

// Last implements [kafkaadapter.HeaderReader].
func (headers) Last(raw any, name string) ([]byte, bool) {
	m := raw.(kafka.Message) //nolint:errcheck,forcetypeassert // messageOf has put it there
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if h := &m.Headers[i]; strings.EqualFold(h.Key, name) {
			return h.Value, true
		}
	}
	return nil, false
}

// All implements [kafkaadapter.HeaderReader].
func (headers) All(raw any) kafkaadapter.Headers {
	m := raw.(kafka.Message) //nolint:errcheck,forcetypeassert // messageOf has put it there
	all := make(kafkaadapter.Headers, len(m.Headers))
	for i, h := range m.Headers {
		all[i] = kafkaadapter.Header{Key: h.Key, Value: h.Value}
	}
	return all
}
