package kafkaadapter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// DownstreamHeader gives a message for one purpose the same id in every attempt, and messages for
// different purposes different ids.
func TestDownstreamHeaderIsTheIDOfTheMessageInEveryAttempt(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "a", Window: time.Hour,
		LeaseTTL: time.Minute})
	require.NoError(t, err)
	find, ids := DefaultID(), map[string]int{}
	for range 2 {
		_, err := dedup.Do(t.Context(), d, "order-1", func(ctx context.Context) (int, error) {
			for _, purpose := range []string{"invoice", "mail"} {
				h, err := DownstreamHeader(ctx, purpose)
				require.NoError(t, err)
				m := &Message{}
				m.SetHeaders(Headers{h})
				id, ok := find(m)
				require.True(t, ok)
				ids[id]++
			}
			return 0, errors.New("the process dies")
		})
		require.Error(t, err)
	}
	require.Len(t, ids, 2)
	for id, n := range ids {
		assert.Equal(t, 2, n, id)
	}
	_, err = DownstreamHeader(t.Context(), "mail")
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "kafkaadapter.DownstreamHeader", input.Field)
}
