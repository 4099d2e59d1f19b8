package kafkafranz

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
)

// Message makes a message of a record that kgo has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(r *kgo.Record) *kafkaadapter.Message {
	if r == nil {
		return nil
	}
	out := messageOf(r)
	return &out
}

func messageOf(r *kgo.Record) kafkaadapter.Message {
	m := kafkaadapter.Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key,
		Value: r.Value, Timestamp: r.Timestamp, Raw: r}
	m.ReadHeaders(headers{})
	return m
}

// headers reads the headers of a *kgo.Record.
type headers struct{}

// Last implements [kafkaadapter.HeaderReader].
func (headers) Last(raw any, name string) ([]byte, bool) {
	r := raw.(*kgo.Record) //nolint:errcheck,forcetypeassert // messageOf has put it there
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if h := &r.Headers[i]; strings.EqualFold(h.Key, name) {
			return h.Value, true
		}
	}
	return nil, false
}

// All implements [kafkaadapter.HeaderReader].
func (headers) All(raw any) kafkaadapter.Headers {
	r := raw.(*kgo.Record) //nolint:errcheck,forcetypeassert // messageOf has put it there
	all := make(kafkaadapter.Headers, len(r.Headers))
	for i, h := range r.Headers {
		all[i] = kafkaadapter.Header{Key: h.Key, Value: h.Value}
	}
	return all
}
