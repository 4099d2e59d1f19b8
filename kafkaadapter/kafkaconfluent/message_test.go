package kafkaconfluent

import (
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// A message has all that the client has delivered, whether its headers are read before or after
// they are converted.
func TestMessage(t *testing.T) {
	topic := orders
	at := kafka.TopicPartition{Topic: &topic, Partition: 3, Offset: 7}
	r := &kafka.Message{TopicPartition: at, Key: []byte("k"), Value: []byte("v"),
		Timestamp: time.UnixMilli(1e12), Headers: []kafka.Header{
			{Key: "id", Value: []byte("first")}, {Key: "ID", Value: []byte("last")},
			{Key: "empty"}}}
	m := Message(r)
	for range 2 {
		assert.Equal(t, "last", m.Header("Id"))
		assert.Empty(t, m.Header("empty"))
		assert.Empty(t, m.Header("none"))
		assert.Equal(t, kafkaadapter.Headers{{Key: "id", Value: []byte("first")},
			{Key: "ID", Value: []byte("last")}, {Key: "empty"}}, m.Headers())
	}
	want := kafkaadapter.Message{Topic: orders, Partition: 3, Offset: 7, Key: []byte("k"),
		Value: []byte("v"), Timestamp: time.UnixMilli(1e12), Raw: r}
	want.SetHeaders(m.Headers())
	assert.Equal(t, want, *m)
	assert.Nil(t, Message(&kafka.Message{}).Value, "a tombstone")
	assert.Nil(t, Message(nil))
}
