package redisadapter_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestConformance runs the suite that every Store must pass. On miniredis time is moved
// by hand, so that two commands may see the very same instant.
func TestConformance(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) {
		eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
			mini, client := redistest.Freeze(t)
			h := harness(t, redistest.Backend{Client: client, Prefix: "ow"}, layout)
			h.Advance = mini.Advance
			deduptest.Run(t, h)
		})
	})
	for _, name := range redistest.Backends[1:] {
		t.Run(name, func(t *testing.T) {
			eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
				t.Parallel()
				deduptest.Run(t, harness(t, redistest.Open(t, name), layout))
			})
		})
	}
}

// eachLayout runs a test for every layout.
func eachLayout(t *testing.T, run func(*testing.T, redisadapter.Layout)) {
	t.Helper()
	for _, layout := range []redisadapter.Layout{redisadapter.Rich, redisadapter.SeenOnly} {
		t.Run(layout.String(), func(t *testing.T) { run(t, layout) })
	}
}

func harness(t *testing.T, b redistest.Backend, layout redisadapter.Layout) deduptest.Harness {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix, Layout: layout})
	if err != nil {
		t.Fatal(err)
	}
	h := deduptest.Harness{
		SeenOnly:   store.SeenOnly(),
		New:        func(testing.TB) dedup.Store { return store },
		Unreadable: make(map[string]func(testing.TB, dedup.Store, dedup.ID)),
	}
	for name, plant := range unreadable {
		h.Unreadable[name] = func(t testing.TB, _ dedup.Store, id dedup.ID) {
			t.Helper()
			plant(t, b.Client, redisadapter.Key(store, id))
		}
	}
	return h
}

func open(t testing.TB, b redistest.Backend) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// plant puts something under a key.
type plant func(t testing.TB, client redis.UniversalClient, key string)
