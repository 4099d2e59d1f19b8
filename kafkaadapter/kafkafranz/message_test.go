package kafkafranz

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
)

// A message has all of its record, whether its headers are read before or after they are converted.
func TestMessage(t *testing.T) {
	r := &kgo.Record{Topic: orders, Partition: 3, Offset: 7, Key: []byte("k"), Value: []byte("v"),
		Timestamp: time.UnixMilli(1e12), Headers: []kgo.RecordHeader{
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
	assert.Nil(t, Message(&kgo.Record{}).Value, "a tombstone")
	assert.Nil(t, Message(nil))
}
