package peer

import (
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A peer that takes every key for new would be fast, and no deduplication.
func TestPeersRefuseAKnownKey(t *testing.T) {
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	mill, err := Watermill()
	if err != nil {
		t.Fatal(err)
	}
	auto, err := AutoPipeline(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auto.Close)
	multiplexed, err := Rueidis(mini.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(multiplexed.Close)
	for _, p := range []Peer{Naive(client), Plain(client), Redislock(client), Fiber(client),
		mill, auto, multiplexed} {
		t.Run(p.Name, func(t *testing.T) {
			key := "key of " + p.Name
			if err := p.Cycle(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := p.Cycle(t.Context(), key); !errors.Is(err, errNotNew) {
				t.Errorf("a second time: %v, want %v", err, errNotNew)
			}
		})
	}
	t.Run("redsync remembers nothing", func(t *testing.T) {
		p := Redsync(client)
		for range 2 {
			if err := p.Cycle(t.Context(), "lock"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBatchesRefuseKnownKeys(t *testing.T) {
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	multi, err := RueidisClient(mini.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(multi.Close)
	if err := GoRedisBatch(t.Context(), client, []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	if err := RueidisBatch(t.Context(), multi, []string{"c", "d"}); err != nil {
		t.Fatal(err)
	}
	if err := GoRedisBatch(t.Context(), client, []string{"e", "c"}); !errors.Is(err, errNotNew) {
		t.Errorf("go-redis: %v", err)
	}
	if err := RueidisBatch(t.Context(), multi, []string{"f", "a"}); !errors.Is(err, errNotNew) {
		t.Errorf("rueidis: %v", err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if got, _ := mini.Get(key); got != done {
			t.Errorf("%s is %q, want done", key, got)
		}
	}
}

func TestMap(t *testing.T) {
	m := NewMap([]string{"a"})
	if !m.Seen("a") || m.Seen("b") {
		t.Errorf("a %v, b %v", m.Seen("a"), m.Seen("b"))
	}
}

func TestParseRedisBenchmark(t *testing.T) {
	const header = `"test","rps","avg_latency_ms"` + "\n"
	got, err := parseRedisBenchmark(header + `"SET k v NX PX 1","350877.19","1.2"` + "\n")
	if err != nil || got != 350877.19 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", header, header + `"SET","x","1"`,
		`"SET","100.0"` + "\n" + `"GET","100.0"`, header + `"SET","0","1"`} {
		if got, err := parseRedisBenchmark(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}
}
