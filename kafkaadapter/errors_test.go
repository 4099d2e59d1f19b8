package kafkaadapter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

func TestRetryAfterKeepsItsCause(t *testing.T) {
	assert.NoError(t, RetryAfter(time.Second, nil), "an error was made of none")
	err := RetryAfter(-1, dedup.Permanent(errBroken))
	assert.True(t, dedup.IsPermanent(err))
	assert.ErrorIs(t, err, errBroken)
}
