package redisadapter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// forgets returns the number of Forgets, which must be readable.
func forgets(t *testing.T, store *redisadapter.Store) uint64 {
	t.Helper()
	n, err := store.Forgets(t.Context())
	must(t, err)
	return n
}

// TestForgetsSurviveTheirLoss: when the number is lost, the next one is random. If an old number
// came back, a cache that has seen it before would miss a Forget.
func TestForgetsSurviveTheirLoss(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store, other := open(t, b), open(t, b)
		seen := map[uint64]bool{}
		for i := range 20 {
			n := forgets(t, store)
			again := forgets(t, other)
			require.Equal(t, n, again, "two readers see %d and %d", n, again)
			require.False(t, seen[n], "round %d: %d has been there before", i, n)
			seen[n] = true
			if i%2 == 1 {
				must(t, other.Forget(t.Context(), []driver.ID{newID(1)}, time.Second)[0])
			} else {
				must(t, b.Client.Del(t.Context(), b.Prefix+":forgets").Err())
			}
		}
		left := b.Client.PTTL(t.Context(), b.Prefix+":forgets").Val()
		assert.GreaterOrEqual(t, left, 29*24*time.Hour, "the number is kept for %v", left)
	})
}

// TestForgetsOfALiveClaim: a Forget that was refused changes nothing, so no cache is emptied.
func TestForgetsOfALiveClaim(t *testing.T) {
	b := newBench(t)
	b.claim(request(1))
	before := forgets(t, b.Store)
	err := b.Forget(t.Context(), []driver.ID{newID(1)}, time.Second)[0]
	require.ErrorIs(t, err, dedup.ErrInFlight)
	after := forgets(t, b.Store)
	assert.Equal(t, before, after, "%d became %d", before, after)
}

// TestForgetThatCannotBeTold: the key is forgotten, but the number cannot be changed. Forget
// returns an error, so that the operator repeats it, and does not change the foreign value.
func TestForgetThatCannotBeTold(t *testing.T) {
	for name, plant := range map[string]func(b *bench) error{
		"foreign text": func(b *bench) error {
			return b.client.Set(b.Context(), "ow:forgets", "hello", 0).Err()
		},
		"another type": func(b *bench) error {
			return b.client.LPush(b.Context(), "ow:forgets", "hello").Err()
		},
		"too large": func(b *bench) error {
			return b.client.Set(b.Context(), "ow:forgets", "99999999999999999999", 0).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			live := request(2)
			b.claim(live)
			must(t, plant(b))
			_, err := b.Forgets(t.Context())
			assert.ErrorIs(t, err, driver.ErrUnreadable, "Forgets")
			if name == "too large" { // Forget takes the digits for its own number and replaces them
				return
			}
			errs := b.Forget(t.Context(), []driver.ID{newID(1), newID(2)}, time.Second)
			require.ErrorIs(t, errs[0], driver.ErrUnreadable, "forgotten and not told")
			assert.Contains(t, errs[0].Error(), "may not be told",
				"forgotten and not told: %v", errs[0])
			assert.ErrorIs(t, errs[1], dedup.ErrInFlight, "refused")
			v, err := b.client.Get(t.Context(), "ow:forgets").Result()
			assert.False(t, err == nil && v != "hello", "overwritten with %q", v)
			must(t, b.client.Del(t.Context(), "ow:forgets").Err())
			must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Second)[0])
		})
	}
}
