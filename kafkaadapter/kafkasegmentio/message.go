package kafkasegmentio

import (
	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
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
	out.ReadHeaders(headers)
	return out
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kafka.Header](func(raw any) []kafka.Header {
	return raw.(kafka.Message).Headers //nolint:errcheck,forcetypeassert // messageOf has put it there
})
