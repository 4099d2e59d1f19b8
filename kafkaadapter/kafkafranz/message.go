package kafkafranz

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
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
	m.ReadHeaders(headers)
	return m
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kgo.RecordHeader](func(raw any) []kgo.RecordHeader {
	return raw.(*kgo.Record).Headers //nolint:errcheck,forcetypeassert // messageOf has put it there
})
