package peer

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

func open(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return mini, client
}

// A peer that takes every key for new would be fast, but would not deduplicate.
func TestPeersRefuseAKnownKey(t *testing.T) {
	mini, client := open(t)
	s := &harness.Setup{}
	t.Cleanup(func() { _ = s.Close() })
	for _, p := range []Peer{Naive(client), Plain(client), Redislock(client), Fiber(client),
		Watermill(), AutoPipeline(s, client), Rueidis(s, mini.Addr(), 0)} {
		t.Run(p.Name, func(t *testing.T) {
			p.Cycle(t.Context(), "key of "+p.Name)
			require.ErrorIs(t, must.Try(func() { p.Cycle(t.Context(), "key of "+p.Name) }),
				errNotNew, "a second time")
		})
	}
	t.Run("redsync remembers nothing", func(t *testing.T) {
		for range 2 {
			Redsync(client).Cycle(t.Context(), "lock")
		}
	})
}

func TestBatchesRefuseKnownKeys(t *testing.T) {
	mini, client := open(t)
	s := &harness.Setup{}
	t.Cleanup(func() { _ = s.Close() })
	pipelines, multi := GoRedisBatch(client), RueidisBatch(RueidisClient(s, mini.Addr(), 0))
	pipelines(t.Context(), 0, []string{"a", "b"})
	multi(t.Context(), 0, []string{"c", "d"})
	for known, batch := range map[string]Batch{"c": pipelines, "a": multi} {
		require.ErrorIs(t, must.Try(func() {
			batch(t.Context(), 0, []string{"new of " + known, known})
		}), errNotNew)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		got, _ := mini.Get(key)
		assert.Equal(t, done, got, key)
	}
}

func TestMap(t *testing.T) {
	m := NewMap([]string{"a"})
	assert.True(t, m.Seen("a"))
	assert.False(t, m.Seen("b"))
}

func TestParseRedisBenchmark(t *testing.T) {
	const header = `"test","rps","avg_latency_ms"` + "\n"
	got, err := parseRedisBenchmark(header + `"SET k v NX PX 1","350877.19","1.2"` + "\n")
	require.NoError(t, err)
	assert.Equal(t, 350877.19, got)
	for _, bad := range []string{"", header, header + `"SET","x","1"`,
		`"SET","100.0"` + "\n" + `"GET","100.0"`, header + `"SET","0","1"`} {
		_, err := parseRedisBenchmark(bad)
		assert.Error(t, err, "%q", bad)
	}
}
