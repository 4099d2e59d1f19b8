package redisadapter_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// private starts a server that this test may fill, flush and kill.
func private(t *testing.T) (*servertest.Server, *redis.Client, *redisadapter.Store) {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	return server, client, open(t, redistest.Backend{Client: client, Prefix: "ow"})
}

const batchSize = 256

// requests and changes make a batch that begins with item first.
func requests(first int) []driver.ClaimRequest {
	reqs := make([]driver.ClaimRequest, batchSize)
	for i := range reqs {
		reqs[i] = request(first + i)
	}
	return reqs
}

func changes(first int, state driver.State) []driver.Finish {
	cs := make([]driver.Finish, batchSize)
	for i := range cs {
		cs[i] = change(first+i, state)
	}
	return cs
}

func renewals(first int) []driver.Renewal {
	rs := make([]driver.Renewal, batchSize)
	for i := range rs {
		rs[i] = renewal(first + i)
	}
	return rs
}

// TestFullServer: an effect that has happened must be recorded, even if the server is full. New
// claims are refused. Every call that ends a claim, and every known answer, still succeeds.
func TestFullServer(t *testing.T) {
	_, client, store := private(t)
	ctx := t.Context()
	const claimed = 8 * batchSize
	for first := 0; first < claimed; first += batchSize {
		for i, a := range store.Claim(ctx, requests(first)) {
			require.Equal(t, dedup.Acquired, a.Outcome, "claim %d: %+v", first+i, a)
		}
	}
	// This is less than an empty server needs, so no later call can free enough memory.
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	must(t, client.ConfigSet(ctx, "maxmemory", "100kb").Err())

	for i, a := range store.Claim(ctx, requests(claimed)) {
		require.ErrorIs(t, a.Err, driver.ErrStoreFull, "new claim %d: %+v", i, a)
		require.Equal(t, "full", redisadapter.Classify(a.Err), "new claim %d: %+v", i, a)
	}
	for i, a := range store.Renew(ctx, renewals(0)) {
		require.True(t, a.Held, "renewal %d: %+v", i, a)
	}
	for n, state := range []driver.State{driver.StateSucceeded, driver.StateFailed,
		driver.StateReleased} {
		batch := changes(n*batchSize, state)
		for i := range batch {
			batch[i].Result = []byte("receipt")
		}
		for i, a := range store.Finish(ctx, batch) {
			require.True(t, a.Held, "%v %d: %+v", state, i, a)
			require.True(t, a.Written, "%v %d: %+v", state, i, a)
		}
	}
	landed := change(claimed+batchSize, driver.StateSucceeded)
	landed.EffectApplied = true
	a := store.Finish(ctx, []driver.Finish{landed})[0]
	assert.True(t, a.Written, "a landed effect of a key that was not claimed: %+v", a)
	for first, want := range map[int]driver.Outcome{0: dedup.Duplicate, batchSize: dedup.Duplicate,
		3 * batchSize: dedup.Acquired} {
		for i, a := range store.Claim(ctx, requests(first)) {
			require.Equal(t, want, a.Outcome, "known claim %d: want %v, got %+v", first+i, want, a)
			require.Equal(t, want == dedup.Acquired, a.Mine,
				"known claim %d: want %v, got %+v", first+i, want, a)
		}
	}
	must(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	a = store.Claim(ctx, requests(claimed))[0]
	assert.Equal(t, dedup.Acquired, a.Outcome, "after there is room again: %+v", a)
	evicted := infoOf(t, client, "stats", "evicted_keys")
	assert.Equal(t, "0", evicted, "%s keys were evicted", evicted)
}

func infoOf(t testing.TB, client *redis.Client, section, field string) string {
	t.Helper()
	text, err := client.Info(t.Context(), section).Result()
	must(t, err)
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			return value
		}
	}
	t.Fatalf("INFO %s has no %s", section, field)
	return ""
}

// TestScriptsFlushedAllTheTime: a server forgets its scripts between and within the pipelines of
// four workers, and no call fails.
func TestScriptsFlushedAllTheTime(t *testing.T) {
	_, client, store := private(t)
	ctx, cancel := context.WithCancel(t.Context())
	var flusher, workers sync.WaitGroup
	flushes := 0
	flusher.Go(func() {
		for ctx.Err() == nil {
			err := client.ScriptFlush(ctx).Err()
			assert.False(t, err != nil && ctx.Err() == nil, "SCRIPT FLUSH: %v", err)
			flushes++
		}
	})
	for w := range 4 {
		workers.Go(func() {
			for turn := range 10 {
				first := (w*10 + turn) * batchSize
				for i, a := range store.Claim(t.Context(), requests(first)) {
					first := a.Outcome == dedup.Acquired && !a.Mine && a.Record.Attempt == 1
					if !assert.True(t, first, "claim %d: %+v", i, a) {
						return
					}
				}
				for i, a := range store.Finish(t.Context(), changes(first, driver.StateSucceeded)) {
					if !assert.True(t, a.Held && a.Written, "finish %d: %+v", first+i, a) {
						return
					}
				}
			}
		})
	}
	workers.Wait()
	cancel()
	flusher.Wait()
	assert.GreaterOrEqual(t, flushes, 40, "only %d flushes", flushes)
}

// TestRestart kills a server with an append-only file between claim and end. It has only forgotten
// its scripts.
func TestRestart(t *testing.T) {
	server, client, store := private(t)
	// With everysec the server keeps in its memory what it acknowledges while the disk is slow.
	require.NoError(t, client.ConfigSet(t.Context(), "appendfsync", "always").Err())
	for i, a := range store.Claim(t.Context(), requests(0)) {
		require.Equal(t, dedup.Acquired, a.Outcome, "claim %d: %+v", i, a)
	}
	server.Kill(1)
	for _, a := range store.Finish(t.Context(), changes(0, driver.StateSucceeded)) {
		require.Error(t, a.Err, "while the server is down: %+v", a)
		require.False(t, a.Held, "while the server is down: %+v", a)
		require.False(t, a.Written, "while the server is down: %+v", a)
		require.True(t, dedup.CanRetry(a.Err), "while the server is down: %+v", a)
		require.Equal(t, "network", redisadapter.Classify(a.Err),
			"while the server is down: %+v", a)
	}
	server.Start(1)
	for i, a := range store.Finish(t.Context(), changes(0, driver.StateSucceeded)) {
		require.True(t, a.Held, "after the restart, item %d: %+v", i, a)
		require.True(t, a.Written, "after the restart, item %d: %+v", i, a)
	}
}

// TestFrozenServer: a call returns when its context ends. When the server wakes up, it executes the
// call, and the same tokens find its result.
func TestFrozenServer(t *testing.T) {
	server, _, store := private(t)
	store.Claim(t.Context(), requests(batchSize)) // connections and scripts are there
	server.Stop(1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	for _, a := range store.Claim(ctx, requests(0)) {
		require.Equal(t, "context", redisadapter.Classify(a.Err),
			"while the server is frozen: %+v", a)
		require.Equal(t, dedup.Unknown, a.Outcome, "while the server is frozen: %+v", a)
	}
	// the client would wait for 12 s
	took := time.Since(start)
	assert.LessOrEqual(t, took, 8*time.Second, "returned after %v", took)
	server.Cont(1)
	for i, a := range store.Claim(t.Context(), requests(0)) {
		require.Equal(t, dedup.Acquired, a.Outcome, "item %d, asked again: %+v", i, a)
		require.Equal(t, 1, a.Record.Attempt, "item %d, asked again: %+v", i, a)
	}
}
