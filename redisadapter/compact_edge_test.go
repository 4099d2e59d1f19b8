package redisadapter_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// edge is a store on a server whose clock is frozen at from before or after the begin of a
// generation, and is five hours ahead of ours.
func edge(t *testing.T, from time.Duration) (*bench, time.Duration) {
	t.Helper()
	mini, client := redistest.Freeze(t)
	const off = 5 * time.Hour
	window := time.Hour
	now := time.Now().Add(off)
	mini.Advance(off + now.Truncate(window).Add(window+from).Sub(now))
	store := openWith(t, redistest.Backend{Client: client},
		layoutOptions("ow", redisadapter.Compact))
	return &bench{t, store, mini, client}, window
}

// TestRemembered checks a key at many times after its end. It is done for at least a window, and
// for at most two windows and twice the skew, wherever the generations begin.
func TestRemembered(t *testing.T) {
	for _, from := range []time.Duration{-30 * time.Minute, -time.Millisecond,
		0, time.Millisecond, 30 * time.Minute} {
		t.Run(from.String(), func(t *testing.T) {
			b, window := edge(t, from)
			seasoned(t, b.Store)
			b.finish(done(1, b.claim(request(1))))
			other := request(1)
			other.Token = driver.Token{9}
			passed := time.Duration(0)
			wait := func(until time.Duration) {
				b.mini.Advance(until - passed)
				passed = until
			}
			for _, at := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond,
				window / 2, window - time.Millisecond, window} {
				wait(at)
				a := b.claim(other)
				require.Equal(t, dedup.Duplicate, a.Outcome, "%v after its end: %+v", at, a)
				require.Equal(t, driver.StateSucceeded, a.Record.State, "%v after its end", at)
				require.GreaterOrEqual(t, a.Record.Remaining, window-at, "%v after its end", at)
				other.LikelyDuplicate = !other.LikelyDuplicate
				rec := b.lookup(1)
				require.Equal(t, driver.StateSucceeded, rec.State, "%v after its end", at)
				n := b.client.Exists(t.Context(),
					redisadapter.Key(b.Store, newID(1))).Val()
				require.Zero(t, n, "%v after its end a duplicate has left its lease", at)
			}
			wait(2*window + 2*redisadapter.Skew(b.Store))
			rec := b.lookup(1)
			assert.Equal(t, driver.StateAbsent, rec.State, "after two windows")
			a := b.claim(other)
			assert.Equal(t, dedup.Acquired, a.Outcome, "after two windows: %+v", a)
		})
	}
}

// TestBucketsEnd: every bucket expires. That includes one whose first member was added by a process
// that did not know it was the first, and one that a Forget has emptied.
func TestBucketsEnd(t *testing.T) {
	b, window := edge(t, time.Minute)
	seasoned(t, b.Store)
	buckets := func() (keys []string) {
		for _, key := range b.mini.Keys() {
			if kind := b.client.Type(t.Context(), key).Val(); kind == "set" {
				keys = append(keys, key)
			}
		}
		return keys
	}
	require.Len(t, buckets(), redisadapter.Shards(b.Store))
	bounded := func(when string) {
		t.Helper()
		for _, key := range buckets() {
			left := b.client.PTTL(t.Context(), key).Val()
			assert.GreaterOrEqual(t, left, window, "%s: %s", when, key)
			assert.LessOrEqual(t, left, 3*window, "%s: %s", when, key)
		}
	}
	bounded("at first")

	// A Forget empties it. Then a process adds to it that believes that it has an expiry.
	b.finish(done(1, b.claim(request(1))))
	key := redisadapter.Bucket(b.Store, newID(1), b.serverTime())
	for _, m := range b.client.SMembers(t.Context(), key).Val() {
		if m != member(b.Store, 1) {
			b.client.SRem(t.Context(), key, m)
		}
	}
	require.NoError(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Second)[0])
	bounded("after the last member was forgotten")
	again := request(1)
	again.Token = driver.Token{9}
	end := done(1, b.claim(again))
	end.Token = again.Token
	b.finish(end)
	bounded("after that")

	// The bucket loses its expiry. In the next generation it gets one again.
	require.NoError(t, b.client.Persist(t.Context(), key).Err())
	b.mini.Advance(window)
	season(t, b.Store, 10_000)
	left := b.client.PTTL(t.Context(), key).Val()
	assert.Positive(t, left, "a bucket without an end")
	assert.LessOrEqual(t, left, 2*window, "a bucket without an end")
	b.mini.Advance(4 * window)
	assert.Len(t, b.mini.Keys(), 3,
		"long after there are the number of Forgets, the layout, and the note about the index")
}

// TestOverfullBucket: a bucket with too many keys costs memory, but every answer is right.
func TestOverfullBucket(t *testing.T) {
	redistest.Each(t, func(t *testing.T, backend redistest.Backend) {
		opts := layoutOptions(backend.Prefix, redisadapter.Compact)
		opts.ExpectedKeys = 10 // one shard, for a thousand keys
		store := openWith(t, backend, opts)
		season(t, store, 20_000)
		for first := range 4 {
			reqs := requests(20_000 + first*batchSize)
			for i := range reqs {
				reqs[i].Token = driver.Token{9}
			}
			for i, a := range store.Claim(t.Context(), reqs) {
				require.Equal(t, dedup.Duplicate, a.Outcome, "key %d: %+v", i, a)
			}
			for i, a := range store.Claim(t.Context(), requests(40_000+first*batchSize)) {
				require.Equal(t, dedup.Acquired, a.Outcome, "a fresh key, %d: %+v", i, a)
			}
		}
		if backend.Name == "redis" {
			client := backend.Client.(*redis.Client)
			at, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			kind := client.ObjectEncoding(t.Context(),
				redisadapter.Bucket(store, newID(1), at)).Val()
			assert.Equal(t, "hashtable", kind, "with another encoding the test says little")
		}
	})
}

// serverTime returns the time of the frozen server.
func (b *bench) serverTime() time.Time {
	b.Helper()
	at, err := b.client.Time(b.Context()).Result()
	require.NoError(b, err)
	return at
}

func member(s *redisadapter.Store, n int) string {
	return strconv.FormatInt(redisadapter.Member(s, newID(n)), 10)
}
