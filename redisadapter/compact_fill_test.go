package redisadapter_test

import (
	"context"
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

// filled is a store on a real server with 1,024 finished keys in its buckets.
func filled(t *testing.T, expected int) (*redisadapter.Store, *redis.Client, *findingLog) {
	t.Helper()
	client := redistest.Patient(t, servertest.Redis(t))
	opts, h := layoutOptions(servertest.Prefix(t), redisadapter.Compact), &findingLog{}
	opts.ExpectedKeys, opts.OnFinding = expected, h.add
	store := openWith(t, redistest.Backend{Client: client}, opts)
	season(t, store, 20_000)
	return store, client, h
}

// TestFullBucketsAreFound: if ExpectedKeys is too small, the watcher reports it before memory runs
// out.
func TestFullBucketsAreFound(t *testing.T) {
	t.Parallel()
	store, _, h := filled(t, 2*redisadapter.KeysPerBucket)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Watch(ctx, 5*time.Millisecond) }()
	eventually(t, "the finding", func() bool { return h.count("full_buckets") == 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// TestFullBucketsAreReportedOnce: they are reported again only after there was room. One bucket may
// be larger than the others by chance, and is not reported.
func TestFullBucketsAreReportedOnce(t *testing.T) {
	t.Parallel()
	store, client, h := filled(t, 3*redisadapter.KeysPerBucket) // 341 keys a bucket
	look := redisadapter.LooksAtBuckets(store)
	look(t.Context())
	assert.Zero(t, h.count("full_buckets"))

	large := redisadapter.Bucket(store, newID(1), client.Time(t.Context()).Val())
	for n := range 100 {
		require.NoError(t, client.SAdd(t.Context(), large, n).Err())
	}
	look(t.Context())
	assert.Zero(t, h.count("full_buckets"), "one bucket is larger")

	season(t, store, 50_000)
	look(t.Context())
	look(t.Context())
	assert.Equal(t, 1, h.count("full_buckets"))

	for n := range 64 { // these keys are in all buckets
		bucket := redisadapter.Bucket(store, newID(n), client.Time(t.Context()).Val())
		require.NoError(t, client.Del(t.Context(), bucket).Err())
	}
	look(t.Context())
	season(t, store, 70_000)
	season(t, store, 60_000)
	look(t.Context())
	assert.Equal(t, 2, h.count("full_buckets"))
}

// TestBucketsOfTheLastGenerationAreSampled: no more keys are added to that generation.
func TestBucketsOfTheLastGenerationAreSampled(t *testing.T) {
	b, window := edge(t, -time.Minute)
	opts, h := layoutOptions("full", redisadapter.Compact), &findingLog{}
	opts.ExpectedKeys, opts.OnFinding = redisadapter.KeysPerBucket, h.add
	store := openWith(t, redistest.Backend{Client: b.client}, opts)
	season(t, store, 20_000)
	b.mini.Advance(window)
	require.Equal(t, dedup.Acquired,
		store.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0].Outcome)
	redisadapter.LooksAtBuckets(store)(t.Context())
	assert.Equal(t, 1, h.count("full_buckets"))
}
