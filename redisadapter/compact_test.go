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
	// One server is enough: TestConformance has Compact, which does the same, on all.
	b := redistest.Open(t, "redis")
	store := openWith(t, b, layoutOptions(b.Prefix, redisadapter.Mixed))
	deduptest.Run(t, deduptest.Harness{DoneOnly: true, WalkSteps: walkSteps,
		New: func(testing.TB) dedup.Store { return store }})
}
