package redisadapter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// TestDoAtomicOfAnotherKeysMissingResult: an effect that returns ErrNoResult of another key has
// written nothing, so its message must be redelivered.
func TestDoAtomicOfAnotherKeysMissingResult(t *testing.T) {
	b := redistest.Open(t, redistest.Backends[0])
	store := open(t, b)
	d, err := dedup.New(store,
		dedup.Config{Namespace: "atomic", Window: time.Hour, LeaseTTL: time.Second})
	require.NoError(t, err)
	inner := fmt.Errorf("inner: %w", dedup.ErrNoResult)
	outcome, err := store.DoAtomic(t.Context(), d, dedup.Request{Key: "k"},
		func(redis.Cmdable, redis.Pipeliner) error { return inner })
	require.ErrorIs(t, err, inner)
	assert.Equal(t, dedup.Acquired, outcome)
	assert.False(t, dedup.CanAck(err))
	rec, err := d.Lookup(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, driver.StateReleased, rec.State)
}
