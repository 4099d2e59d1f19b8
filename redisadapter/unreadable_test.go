package redisadapter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/redisadapter"
)

// unreadable is what must be taken neither for absent nor for done.
var unreadable = map[string]plant{
	"foreign":       plantValue("1"),
	"empty":         plantValue(""),
	"json":          plantValue(`{"status":"done","at":"2026-01-01T00:00:00Z","owner":"somebody"}`),
	"newer_version": plantGolden(func(v []byte) []byte { v[0] = 2; return v }),
	"new_flag":      plantGolden(func(v []byte) []byte { v[2] |= 0x10; return v }),
	"new_state":     plantGolden(func(v []byte) []byte { v[1] = 6; return v }),
	"truncated":     plantGolden(func(v []byte) []byte { return v[:len(v)-1] }),
	"header_only":   plantGolden(func(v []byte) []byte { return v[:8] }),
	"longer":        plantGolden(func(v []byte) []byte { return append(v, 0) }),
	"no_expiry": func(t testing.TB, client redis.UniversalClient, key string) {
		must(t, client.Set(t.Context(), key, redisadapter.Golden(t, "in_progress"), 0).Err())
	},
	"list": func(t testing.TB, client redis.UniversalClient, key string) {
		must(t, client.RPush(t.Context(), key, "x").Err())
	},
	"hash": func(t testing.TB, client redis.UniversalClient, key string) {
		must(t, client.HSet(t.Context(), key, "state", "done").Err())
	},
}

func plantValue(value string) plant {
	return func(t testing.TB, client redis.UniversalClient, key string) {
		t.Helper()
		must(t, client.Set(t.Context(), key, value, time.Hour).Err())
	}
}

// plantGolden damages a good record.
func plantGolden(damage func([]byte) []byte) plant {
	return func(t testing.TB, client redis.UniversalClient, key string) {
		t.Helper()
		value := damage([]byte(redisadapter.Golden(t, "succeeded_full")))
		must(t, client.Set(t.Context(), key, string(value), time.Hour).Err())
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}
