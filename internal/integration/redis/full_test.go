package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestFullMemory fills a server past maxmemory while work is in flight. The worst result
// would be an effect that has happened and cannot be recorded. New work is refused, and every
// request that ends, renews or answers earlier work still succeeds.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, l layout) {
		server := servertest.Private(t, servertest.KindRedis)
		client := single(t, &redis.Options{Addr: server.Addr})
		var lost atomic.Int64
		d := l.deduper(t, client, dedup.Config{
			Window: window, LeaseTTL: 6 * time.Second, StoreTimeout: 2 * time.Second,
			Observer: dedup.Observer{LeaseLost: func(dedup.Event) { lost.Add(1) }},
		})
		done := inFlight(t, d, "done", 1000)
		complete(t, l, d, done)
		finishing, releasing, renewing := inFlight(t, d, "finishing", 1000),
			inFlight(t, d, "releasing", 200), inFlight(t, d, "renewing", 200)
		var running []context.Context
		for _, c := range renewing {
			ctx, stop := c.KeepAlive(t.Context())
			defer stop()
			running = append(running, ctx)
		}
		began := time.Now()

		wantFull := fill(t, client)
		wantFull()
		refused(t, d, "new", 500)
		complete(t, l, d, finishing)
		wantFull()
		release(t, d, releasing)
		outcomes(t, d, "done", 1000, dedup.Duplicate)
		outcomes(t, d, "finishing", 1000, dedup.Duplicate)
		outcomes(t, d, "renewing", 200, dedup.InFlight)
		eventually(t, 10*time.Second, "every renewed claim outlives its first lease", func() bool {
			return time.Since(began) > 6500*time.Millisecond
		})
		for i, ctx := range running {
			require.NoError(t, ctx.Err(), "renewed claim %d ended: %v", i, context.Cause(ctx))
		}
		complete(t, l, d, renewing)
		wantFull()
		assert.Zero(t, lost.Load(), "leases were lost")
		assert.Zero(t, info(t, client, "evicted_keys"), "keys were evicted")
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		outcomes(t, d, "new", 500, dedup.Acquired)
	})
}

// fill writes ballast to the server until it refuses more, and then lowers the limit, so that
// the memory that the test itself frees does not make room. It returns a check that the
// server still holds more than it may.
func fill(t *testing.T, client *redis.Client) (wantFull func()) {
	t.Helper()
	const room, beyond, piece = 8 << 20, 16 << 20, 256 << 10
	limit := info(t, client, "used_memory") + room
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(limit)).Err())
	ballast := strings.Repeat("x", piece)
	for i := 0; ; i++ {
		err := client.Set(t.Context(), fmt.Sprintf("ballast-%d", i), ballast, 0).Err()
		if redisadapter.Classify(err) == "full" {
			break
		}
		require.NoError(t, err)
		require.LessOrEqual(t, i, 2*room/piece, "the server takes more than its maxmemory")
	}
	limit -= beyond
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(max(limit,
		1<<20))).Err())
	return func() {
		t.Helper()
		used, most := info(t, client, "used_memory"), info(t, client, "maxmemory")
		t.Logf("used_memory %d, maxmemory %d", used, most)
		require.Greater(t, used, most, "the server is not full: used_memory %d, maxmemory", used)
	}
}

// inFlight claims n fresh keys.
func inFlight(t *testing.T, d *dedup.Deduper, name string, n int) []*dedup.Claim {
	t.Helper()
	return outcomes(t, d, name, n, dedup.Acquired)
}

// outcomes claims the n keys of a name, and requires the same answer for each.
func outcomes(t *testing.T, d *dedup.Deduper, name string, n int,
	want driver.Outcome) []*dedup.Claim {
	t.Helper()
	claims, err := d.ClaimBatch(t.Context(), requests(name, n))
	require.NoError(t, err)
	for i, c := range claims {
		require.Equal(t, want, c.Outcome, "%s %d of %d: %v (%v)", name, i, n, c.Outcome, c.Err())
	}
	return claims
}

func requests(name string, n int) []dedup.Request {
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i].Key = fmt.Sprintf("%s-%d", name, i)
	}
	return reqs
}

// complete records every claim, half of them in batches and half one by one.
func complete(t *testing.T, l layout, d *dedup.Deduper, claims []*dedup.Claim) {
	t.Helper()
	half := len(claims) / 2
	var batch []dedup.Completion
	for _, c := range claims[:half] {
		batch = append(batch, dedup.Completion{Claim: c, Result: l.result})
	}
	failed := 0
	var first error
	note := func(err error) {
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	for _, err := range d.CompleteBatch(t.Context(), batch) {
		note(err)
	}
	for _, c := range claims[half:] {
		note(c.Complete(t.Context(), l.result))
	}
	assert.Zero(t, failed, "%d of %d completions failed, first: %v", failed, len(claims),
		first)
}

func release(t *testing.T, d *dedup.Deduper, claims []*dedup.Claim) {
	t.Helper()
	for i, c := range claims {
		require.NoError(t, c.Release(t.Context()), "release %d", i)
	}
}

// refused claims n new keys in a batch and a few one by one, and requires for each an error that
// gives the reason.
func refused(t *testing.T, d *dedup.Deduper, name string, n int) {
	t.Helper()
	wantFullError := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, driver.ErrStoreFull, "a new claim at full memory")
		require.True(t, dedup.OutcomeUnknown(err), "a new claim at full memory: %v", err)
		require.Equal(t, "full", redisadapter.Classify(err), "a new claim at full memory")
	}
	claims, err := d.ClaimBatch(t.Context(), requests(name, n))
	require.NoError(t, err)
	for _, c := range claims {
		wantFullError(c.Err())
	}
	for i := range 10 {
		_, err := d.Claim(t.Context(), fmt.Sprintf("%s-%d", name, i))
		wantFullError(err)
	}
}
