package redisadapter_test

import (
	"testing"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

func openWith(t testing.TB, b redistest.Backend, opts redisadapter.Options) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, opts)
	must(t, err)
	return store
}
