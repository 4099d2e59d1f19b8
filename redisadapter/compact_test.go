package redisadapter_test

import (
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

func openWith(t testing.TB, b redistest.Backend, opts redisadapter.Options) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, opts)
	must(t, err)
	return store
}

// TestMixedKeepsMembersLikeCompact runs the suite of Compact: nothing in it makes a record.
func TestMixedKeepsMembersLikeCompact(t *testing.T) {
	members := func(t *testing.T, b redistest.Backend) deduptest.Harness {
		store := openWith(t, b, layoutOptions(b.Prefix, redisadapter.Mixed))
		return deduptest.Harness{DoneOnly: true, WalkSteps: walkSteps,
			New: func(testing.TB) dedup.Store { return store }}
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		mini, client := redistest.Freeze(t)
		deduptest.Run(t, byHand(mini, members(t, redistest.Backend{Client: client, Prefix: "ow"})))
	})
	for _, name := range redistest.Backends[1:] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deduptest.Run(t, members(t, redistest.Open(t, name)))
		})
	}
}
