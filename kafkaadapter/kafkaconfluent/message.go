package kafkaconfluent

import (
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Message makes a message of one that the client has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(m *kafka.Message) *kafkaadapter.Message {
	if m == nil {
		return nil
	}
	out := messageOf(m)
	return &out
}

func messageOf(m *kafka.Message) kafkaadapter.Message {
	out := kafkaadapter.Message{Partition: m.TopicPartition.Partition,
		Offset: int64(m.TopicPartition.Offset), Key: m.Key, Value: m.Value,
		Timestamp: m.Timestamp, Raw: m}
	if m.TopicPartition.Topic != nil {
		out.Topic = *m.TopicPartition.Topic
	}
	out.ReadHeaders(headers)
	return out
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kafka.Header](func(raw any) []kafka.Header {
	return raw.(*kafka.Message).Headers //nolint:errcheck,forcetypeassert // messageOf has put it there
})
