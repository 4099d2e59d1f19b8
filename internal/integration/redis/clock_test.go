package redis_test

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestClockThatJumps steps the clock of a real server: each step is reported once, and nothing else
// is.
func TestClockThatJumps(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindRedisClock)
	client := single(t, &redis.Options{Addr: server.Addr})
	jumps := make(chan preflight.Finding, 100)
	store, err := redisadapter.New(t.Context(), client, redisadapter.Options{
		Prefix: servertest.Prefix(t),
		OnFinding: func(f preflight.Finding) {
			if f.Code == "clock_jump" {
				jumps <- f
			}
		},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = store.Watch(ctx, 20*time.Millisecond) }()
	defer func() { stop(); <-ended }()

	asked := 0 // by this test
	looks := func() int {
		asked++
		info, err := client.InfoMap(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_info"],
			"calls="), ",")
		n, err := strconv.Atoi(cmp.Or(calls, "0")) // none is shown before the first has ended
		require.NoError(t, err)
		return n - asked
	}
	first := looks()
	eventually(t, 10*time.Second, "the watcher has looked twice", func() bool {
		return looks() >= first+3
	})
	for _, to := range []time.Duration{time.Minute, 0, -time.Minute, time.Hour, -time.Hour,
		2 * time.Second} {
		server.Shift(to)
		select {
		case f := <-jumps:
			t.Logf("at %v: %s", to, f.Detail)
		case <-time.After(10 * time.Second):
			t.Fatalf("a clock that is off by %v now is not told", to)
		}
	}
	select {
	case f := <-jumps:
		t.Errorf("a jump that there was not: %s", f)
	case <-time.After(300 * time.Millisecond):
	}
}
