package kafkaadapter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSince(t *testing.T) {
	r := &Range{From: 10, To: 31}
	for _, offset := range []int64{10, 11, 20, 30} {
		r.Messages = append(r.Messages, &Message{Offset: offset})
	}
	for offset, want := range map[int64]int{0: 4, 10: 4, 11: 3, 12: 2, 20: 2, 21: 1, 30: 1,
		31: 0, 99: 0} {
		assert.Equal(t, r.Messages[len(r.Messages)-want:], r.Since(offset), "Since(%d)", offset)
	}
}
