package redisadapter_test

import (
	"crypto/sha256"
	"fmt"
	"strconv"
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

// TestFullServerWithBuckets: a full server refuses SADD but executes GETDEL. 1,000 claims are still
// completed, and no later claim gets one of their keys.
func TestFullServerWithBuckets(t *testing.T) {
	_, client, _ := private(t)
	ctx := t.Context()
	store := openWith(t, redistest.Backend{Client: client},
		layoutOptions("buckets", redisadapter.Compact))
	seasoned(t, store)
	const claimed = 4 * batchSize
	var ends []driver.Finish
	for first := 0; first < claimed; first += batchSize {
		for i, a := range store.Claim(ctx, requests(first)) {
			ends = append(ends, done(first+i, a))
		}
	}
	require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "100kb").Err())
	for i, a := range store.Claim(ctx, requests(claimed)) {
		require.ErrorIs(t, a.Err, driver.ErrStoreFull, "new claim %d", i)
	}
	for i, a := range store.Renew(ctx, renewals(0)) {
		require.True(t, a.Held, "renewal %d: %+v", i, a)
	}
	for i, a := range store.Finish(ctx, ends[:1000]) {
		require.True(t, a.Held && a.Written, "completion %d: %+v", i, a)
	}
	for n := range claimed / batchSize {
		reqs := requests(n * batchSize)
		for i := range reqs {
			reqs[i].Token = driver.Token{9}
		}
		for i, a := range store.Claim(ctx, reqs) {
			want := dedup.Duplicate
			if n*batchSize+i >= 1000 {
				want = dedup.InFlight
			}
			require.Equal(t, want, a.Outcome, "a second claim of key %d: %+v", n*batchSize+i, a)
		}
	}
	release := change(1000, driver.StateReleased)
	a := store.Finish(ctx, []driver.Finish{release})[0]
	assert.True(t, a.Held, "a release: %+v", a)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
}

// complete claims and completes n keys, in batches of a thousand.
func complete(t testing.TB, store *redisadapter.Store, from, n int, window time.Duration) {
	t.Helper()
	completeInBatches(t, store, from, n, 1000, window)
}

// completeInBatches claims and completes n keys, and at most size of them at a time.
func completeInBatches(t testing.TB, store *redisadapter.Store, from, n, size int,
	window time.Duration) {
	t.Helper()
	for first := from; first < from+n; first += size {
		reqs := make([]driver.ClaimRequest, min(size, from+n-first))
		ends := make([]driver.Finish, len(reqs))
		for i := range reqs {
			reqs[i] = driver.ClaimRequest{ID: numbered(first + i), Token: driver.Token{1},
				Lease: time.Minute, Hold: time.Minute}
		}
		until := time.Now().Add(time.Minute)
		for i, a := range store.Claim(t.Context(), reqs) {
			require.Equal(t, dedup.Acquired, a.Outcome, "key %d: %+v", first+i, a)
			ends[i] = driver.Finish{
				ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
				Until: until, State: driver.StateSucceeded, EffectApplied: true, MayOverwrite: true,
				Window: window,
			}
		}
		for i, a := range store.Finish(t.Context(), ends) {
			require.True(t, a.Held && a.Written, "key %d: %+v", first+i, a)
		}
	}
}

// numbered returns the ID of a key. It is a digest, like those of package dedup.
func numbered(n int) driver.ID {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	return driver.ID(sum[:16])
}

// bytesPerKey completes n keys on a server of its own, and returns by how much used_memory has
// grown for each.
func bytesPerKey(t testing.TB, layout redisadapter.Layout, n int) (float64, *redisadapter.Store) {
	t.Helper()
	client := privateClient(t)
	opts := layoutOptions("ow", layout)
	if opts.Window != 0 {
		opts.Window, opts.ExpectedKeys = 24*time.Hour, n
	}
	store := openWith(t, redistest.Backend{Client: client}, opts)
	complete(t, store, -1000, 1000, 24*time.Hour) // connections and scripts are there
	before := usedMemory(t, client)
	complete(t, store, 0, n, 24*time.Hour)
	perKey := float64(usedMemory(t, client)-before) / float64(n)
	t.Logf("%v, %d keys: %.2f bytes per key", layout, n, perKey)
	return perKey, store
}

// privateClient connects to a server of its own that writes nothing to disk.
func privateClient(t testing.TB) *redis.Client {
	t.Helper()
	client := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
	return client
}

func usedMemory(t testing.TB, client *redis.Client) int {
	t.Helper()
	n, err := strconv.Atoi(infoOf(t, client, "memory", "used_memory"))
	require.NoError(t, err)
	return n
}

// TestBytesPerKey checks the numbers of the package comment, with as many keys as expected.
func TestBytesPerKey(t *testing.T) {
	for layout, limit := range map[redisadapter.Layout]float64{redisadapter.Compact: 10.5,
		redisadapter.Full: 220} {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			perKey, _ := bytesPerKey(t, layout, 50_000)
			assert.LessOrEqual(t, perKey, limit, "bytes per key that are promised")
		})
	}
}
