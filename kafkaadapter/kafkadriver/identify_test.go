package kafkadriver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// A position without the topic's UUID is not an id: it would be that of another topic's message. A
// letter that was sent back to its topic has another position, and the id that it had.
func TestPosition(t *testing.T) {
	_, ok := position(&kafkaadapter.Message{Topic: "orders", Offset: 5})
	assert.False(t, ok, "the topic has no UUID")
	id, ok := position(&kafkaadapter.Message{Topic: "orders", TopicID: "u", Offset: 5})
	assert.True(t, ok)
	letter := &kafkaadapter.Message{Topic: "orders", TopicID: "u", Offset: 99}
	letter.SetHeaders(kafkaadapter.Headers{{Key: kafkaadapter.HeaderID, Value: []byte(id)},
		{Key: kafkaadapter.HeaderTopic, Value: []byte("orders")}})
	again, ok := position(letter)
	assert.True(t, ok)
	assert.Equal(t, id, again)
}
