package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func TestHandlerLearnsItsAttempt(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	var fences []uint64
	for want := 1; want <= 3; want++ {
		_, _ = do(t, d, "k", func(ctx context.Context) (string, error) {
			a, ok := dedup.FromContext(ctx)
			assert.True(t, ok)
			assert.Equal(t, "k", a.Key)
			assert.Equal(t, want, a.Number)
			fences = append(fences, a.Fence())
			return "", errNet
		})
	}
	require.Len(t, fences, 3)
	assert.NotZero(t, fences[0])
	assert.Greater(t, fences[1], fences[0])
	assert.Greater(t, fences[2], fences[1])
	_, ok := dedup.FromContext(t.Context())
	assert.False(t, ok, "an attempt outside a handler")
	assert.False(t, dedup.EffectApplied(t.Context()))
	assert.False(t, dedup.EffectApplied(nil)) //nolint:staticcheck // a caller may
}

// The attempt is counted when it is claimed: a handler that kills its process still
// reaches its cap.
func TestAttemptIsCountedWhenItIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		for want := 1; want <= 5; want++ {
			d := newDeduper(t, store, waiting(2*lease))
			assert.Equal(t, want, acquire(t, d, "k").Attempt) // and dies
		}
	})
}

// downstream claims a key and returns what an effect would send further down.
func downstream(t *testing.T, d *dedup.Deduper, key string, opts []dedup.Option,
	purpose ...string) string {
	t.Helper()
	c := acquire(t, d, key, opts...)
	ctx, stop := c.KeepAlive(t.Context())
	defer stop()
	a, ok := dedup.FromContext(ctx)
	require.True(t, ok, "no attempt")
	derived := a.DownstreamKey(purpose...)
	require.NoError(t, c.Release(t.Context()))
	return derived
}

func TestDownstreamKeyIsTheSameOnEveryAttemptAndDistinctPerPurpose(t *testing.T) {
	store := dedup.Memory(100)
	d, other := newDeduper(t, store, nil), newDeduper(t, store, func(c *dedup.Config) {
		c.Namespace = "other"
	})
	scope := []dedup.Option{dedup.WithScope("s")}
	first := downstream(t, d, "k", nil, "stripe", "charge")
	for range 3 {
		again := downstream(t, newDeduper(t, store, nil), "k", nil, "stripe", "charge")
		require.Equal(t, first, again)
	}
	all := map[string]string{}
	for name, derived := range map[string]string{
		"stripe, charge":  first,
		"charge, stripe":  downstream(t, d, "k", nil, "charge", "stripe"),
		"stripe":          downstream(t, d, "k", nil, "stripe"),
		"stripecharge":    downstream(t, d, "k", nil, "stripecharge"),
		"stripec, harge":  downstream(t, d, "k", nil, "stripec", "harge"),
		"nothing":         downstream(t, d, "k", nil),
		"empty":           downstream(t, d, "k", nil, ""),
		"two empty":       downstream(t, d, "k", nil, "", ""),
		"other key":       downstream(t, d, "k2", nil, "stripe", "charge"),
		"other scope":     downstream(t, d, "k", scope, "stripe", "charge"),
		"other namespace": downstream(t, other, "k", nil, "stripe", "charge"),
	} {
		_, ok := all[derived]
		assert.False(t, ok, "%q of %s, also", derived, name)
		assert.Equal(t, 22, len(derived), "%q of %s, also", derived, name)
		all[derived] = name
	}
	// Other systems receive this key and keep it, so it must never change.
	assert.Equal(t, "x8RLnR_qX-JZMjCi4yZEWg", first)
}
