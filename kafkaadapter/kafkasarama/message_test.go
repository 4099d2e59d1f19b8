package kafkasarama

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// Headers of sarama may be nil, nameless, repeated, and of any case: the last one of a name counts,
// as in the Java client.
func TestMessageHeaders(t *testing.T) {
	m := &sarama.ConsumerMessage{Topic: "t", Partition: 2, Offset: 7, Key: []byte("k"),
		Value: []byte("v"), Timestamp: time.UnixMilli(1_700_000_000_123),
		Headers: []*sarama.RecordHeader{nil, {}, {Value: []byte("nameless")},
			{Key: []byte("A"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte("2")},
			{Key: []byte("a"), Value: []byte("3")}, {Key: []byte("B")}}}
	got := Message(m)
	for range 2 { // as they lie there, and when they have been converted
		assert.Equal(t, "3", got.Header("a"))
		assert.Equal(t, "3", got.Header("A"))
		assert.Empty(t, got.Header("b"), "the last one has no value")
		assert.Empty(t, got.Header("c"))
		assert.Equal(t, "nameless", got.Header(""))
		assert.Equal(t, kafkaadapter.Headers{{}, {Value: []byte("nameless")},
			{Key: "A", Value: []byte("1")}, {Key: "b", Value: []byte("2")},
			{Key: "a", Value: []byte("3")}, {Key: "B"}}, got.Headers())
	}
	got.SetHeaders(nil)
	assert.Equal(t, &kafkaadapter.Message{Topic: "t", Partition: 2, Offset: 7, Key: m.Key,
		Value: m.Value, Timestamp: m.Timestamp, Raw: m}, got)
	assert.Nil(t, Message(nil))
}

// FuzzMessageHeaders: a header that is read from sarama's message is the one that is found among
// all of them.
func FuzzMessageHeaders(f *testing.F) {
	f.Add("message-id", "Message-ID", "m1", "message-id", "m2")
	f.Add("\u212aey", "key", "kelvin", "\xff\xfe", "")
	f.Fuzz(func(t *testing.T, name, name1, value1, name2, value2 string) {
		m := Message(&sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{
			{Key: []byte(name1), Value: []byte(value1)}, nil,
			{Key: []byte(name2), Value: []byte(value2)}}})
		read := m.Header(name)
		m.SetHeaders(m.Headers())
		assert.Equal(t, m.Header(name), read)
	})
}
