package kafkaadapter

import (
	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

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
	return func(m *sarama.ConsumerMessage) (string, bool) {
		return msgid.CloudEvents(headersOf(m), m.Value)
	}
}
