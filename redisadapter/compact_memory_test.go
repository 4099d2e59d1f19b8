package redisadapter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestBytesPerKeyOffPlan holds what Options.ExpectedKeys promises: with a tenth and with twice as
// many keys as planned a key takes 14 bytes at most. Buckets that are planned too small cost more
// with a tenth of the keys, and buckets that are planned too large with twice as many. The first
// plan has short names of buckets, and fills the tables of the server's dictionary: what longer
// names and other tables cost is in docs/guides/sizing.md.
func TestBytesPerKeyOffPlan(t *testing.T) {
	for name, c := range map[string]struct{ planned, keys int }{
		"a tenth": {220_000, 22_000}, "twice": {30_000, 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			addr := servertest.Private(t, servertest.KindRedis).Addr
			once(t, addr, func(client *redis.Client) {
				require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
				// The server has scripts, and a histogram for each command that it has met.
				fillBuckets(t, client, "warm", 100, 100)
			})
			before := memoryOf(t, addr)
			once(t, addr, func(client *redis.Client) {
				fillBuckets(t, client, redisadapter.DefaultPrefix, c.planned, c.keys)
			})
			perKey := float64(memoryOf(t, addr)-before) / float64(c.keys)
			t.Logf("%d keys of %d planned: %.2f bytes a key", c.keys, c.planned, perKey)
			assert.LessOrEqual(t, perKey, 14.0)
		})
	}
}

// once runs f with a client of its own: a server has buffers for each client, and shrinks them at
// any time.
func once(t *testing.T, addr string, f func(*redis.Client)) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	f(client)
	require.NoError(t, client.Close())
}

// memoryOf returns the memory that a server has allocated, when it has no other client.
func memoryOf(t *testing.T, addr string) (used int) {
	t.Helper()
	once(t, addr, func(client *redis.Client) {
		eventually(t, "the other client is gone", func() bool {
			return infoOf(t, client, "clients", "connected_clients") == "1"
		})
		used = usedMemory(t, client)
	})
	return used
}

// fillBuckets completes keys keys under a prefix that was planned for planned keys.
func fillBuckets(t *testing.T, client *redis.Client, prefix string, planned, keys int) {
	t.Helper()
	opts := layoutOptions(prefix, redisadapter.Compact)
	opts.Window, opts.ExpectedKeys = 24*time.Hour, planned
	store := openWith(t, redistest.Backend{Client: client}, opts)
	// A lease is an entry of the same dictionary as a bucket, so there are few at a time.
	completeInBatches(t, store, 0, keys, 80, opts.Window)
}

// TestShardsOfBefore: an earlier version made other numbers of shards. If ExpectedKeys gives
// another number than the layout record has, New refuses it, because keys would not be found. A
// move from the old layout finds all that is done there.
func TestShardsOfBefore(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		// A bucket had 400 keys: 4,000 keys made 10 shards.
		opts := layoutOptions(b.Prefix, redisadapter.Compact)
		opts.ExpectedKeys = 10 * redisadapter.KeysPerBucket
		forgetLayout(t, b)
		before := openWith(t, b, opts)
		require.Equal(t, 10, redisadapter.Shards(before))
		completeAll(t, before, requests(0)[:1], 0)

		opts.ExpectedKeys = 4000
		wantOtherLayout(t, b, opts, "shards is 10, and Options say 18")

		opts.Prefix += "-next"
		next := b
		next.Prefix = opts.Prefix
		forgetLayout(t, next)
		moving, err := layered.Moving(before, openWith(t, next, opts))
		require.NoError(t, err)
		again := request(0)
		again.Token = driver.Token{9}
		got := moving.Claim(t.Context(), []driver.ClaimRequest{again})[0]
		require.NoError(t, got.Err)
		assert.Equal(t, dedup.Duplicate, got.Outcome)
	})
}
