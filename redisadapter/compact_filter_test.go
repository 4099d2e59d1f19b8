package redisadapter_test

import (
	"context"
	"fmt"
	"sync/atomic"
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

// looks counts the commands by which a client has asked for members.
type looks struct{ one, whole atomic.Int32 }

func countLooks(client *redis.Client) *looks {
	var n looks
	client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
		next redis.ProcessPipelineHook) error {
		for _, c := range cmds {
			switch c.Name() {
			case "sismember":
				n.one.Add(1)
			case "srandmember":
				n.whole.Add(1)
			}
		}
		return next(ctx, cmds)
	}))
	return &n
}

// learn claims keys that are new until a store has read its buckets as a whole. Hooks may call it
// from another goroutine than the test's, so it must not end the goroutine.
func learn(t *testing.T, s *redisadapter.Store, first int) {
	t.Helper()
	for n := range 2 {
		for i, a := range s.Claim(t.Context(), requests(first+n*batchSize)) {
			if !assert.Equal(t, dedup.Acquired, a.Outcome, "key %d: %+v", first+n*batchSize+i, a) {
				return
			}
		}
	}
}

// TestClosedBucketsAreReadOnce: the store asks about a new key only where it may be, always finds a
// finished key, and takes a forgotten key for new.
func TestClosedBucketsAreReadOnce(t *testing.T) {
	b, window := edge(t, time.Minute)
	seasoned(t, b.Store)
	b.finish(done(1, b.claim(request(1))))
	b.finish(done(2, b.claim(request(2))))
	b.mini.Advance(window)
	learn(t, b.Store, 40_000)
	n := countLooks(b.client)
	learn(t, b.Store, 50_000)
	// Of 512 keys one in a few is asked for in both generations.
	got := n.one.Load()
	assert.GreaterOrEqual(t, got, int32(2*batchSize))
	assert.LessOrEqual(t, got, int32(3*batchSize))
	assert.Zero(t, n.whole.Load(), "buckets were read again")
	again := func(key int, want driver.Outcome) {
		t.Helper()
		for _, likely := range []bool{true, false} {
			req := request(key)
			req.Token, req.LikelyDuplicate = driver.Token{9}, likely
			a := b.claim(req)
			assert.Equal(t, want, a.Outcome, "key %d, likely=%t: %+v", key, likely, a)
		}
	}
	again(1, dedup.Duplicate)
	require.NoError(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Minute)[0])
	req := request(1)
	req.Token = driver.Token{8}
	end := done(1, b.claim(req))
	end.Token = req.Token
	b.finish(end)
	again(1, dedup.Duplicate)
	again(2, dedup.Duplicate)
	b.mini.Advance(window)
	again(1, dedup.Duplicate)
}

// TestOpenBucketsAreAsked: around an edge, claims look at the newer generation while ends are still
// added to the older one. A key that is added after its bucket was asked often is found.
func TestOpenBucketsAreAsked(t *testing.T) {
	for _, from := range []time.Duration{-time.Second, 0, time.Second, 3 * time.Second} {
		t.Run(from.String(), func(t *testing.T) {
			b, _ := edge(t, from)
			other := openWith(t, redistest.Backend{Client: redistest.Patient(t, b.mini.Addr())},
				layoutOptions("ow", redisadapter.Compact))
			learn(t, b.Store, 40_000)
			for key := range 64 {
				claimed := other.Claim(t.Context(), []driver.ClaimRequest{request(key)})[0]
				a := other.Finish(t.Context(), []driver.Finish{done(key, claimed)})[0]
				require.True(t, a.Held, "%+v", a)
				req := request(key)
				req.Token = driver.Token{9, 9}
				a = b.claim(req)
				require.Equal(t, dedup.Duplicate, a.Outcome,
					"key %d was completed after its bucket was asked often: %+v", key, a)
			}
		})
	}
}

// TestClosedBucketIsOpenAgain: a process has read a generation's bucket as a whole. Then the
// server's clock steps back into that generation, a key is completed and is in that bucket, and the
// clock steps forward again. The process used to grant that key again.
func TestClosedBucketIsOpenAgain(t *testing.T) {
	b, _ := edge(t, -20*time.Second)
	other := openWith(t, redistest.Backend{Client: redistest.Patient(t, b.mini.Addr())},
		layoutOptions("ow", redisadapter.Compact))
	seasoned(t, b.Store)
	b.mini.Advance(time.Minute)
	learn(t, b.Store, 40_000)
	b.mini.Advance(-50 * time.Second)
	b.claim(request(39_999)) // the process works and reads the clock
	for key := range 50 {
		claimed := other.Claim(t.Context(), []driver.ClaimRequest{request(key)})[0]
		a := other.Finish(t.Context(), []driver.Finish{done(key, claimed)})[0]
		require.True(t, a.Held, "%+v", a)
	}
	b.mini.Advance(50 * time.Second)
	again := 0
	for key := range 50 {
		req := request(key)
		req.Token = driver.Token{9, 9}
		if a := b.claim(req); a.Outcome == dedup.Acquired {
			again++
		}
	}
	assert.Zero(t, again, "of 50 finished keys were granted again")
}

// TestClockPutRight is TestClosedBucketIsOpenAgain on a real server, whose clock is not read for
// each call. A working process reads the clock after the step back. An idle process does not, and
// only knows that it was idle.
func TestClockPutRight(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindRedisClock)
	open := func(opts redisadapter.Options) *redisadapter.Store {
		return openWith(t, redistest.Backend{Client: redistest.Client(t,
			&redis.Options{Addr: server.Addr})}, opts)
	}
	for name, idle := range map[string]time.Duration{"working": 6 * time.Second,
		"idle": 11 * time.Second} {
		t.Run(name, func(t *testing.T) {
			opts := layoutOptions("ow-"+name, redisadapter.Compact)
			edge := time.Now().Truncate(opts.Window).Add(opts.Window)
			clockAt := func(off time.Duration) { server.Shift(time.Until(edge.Add(off))) }
			clockAt(-20 * time.Second)
			mine := open(opts)
			seasoned(t, mine)
			clockAt(40 * time.Second)
			redisadapter.Idle(mine, 6*time.Second)
			learn(t, mine, 40_000)

			clockAt(-10 * time.Second)
			other := open(opts)
			if name == "working" {
				redisadapter.Idle(mine, idle)
				require.Equal(t, dedup.Acquired,
					mine.Claim(t.Context(), []driver.ClaimRequest{request(39_999)})[0].Outcome)
			}
			for key := range 50 {
				claimed := other.Claim(t.Context(), []driver.ClaimRequest{request(key)})[0]
				require.True(t, other.Finish(t.Context(),
					[]driver.Finish{done(key, claimed)})[0].Held)
			}

			clockAt(40 * time.Second)
			redisadapter.Idle(mine, idle)
			again := 0
			for key := range 50 {
				req := request(key)
				req.Token = driver.Token{9, 9}
				if a := mine.Claim(t.Context(),
					[]driver.ClaimRequest{req})[0]; a.Outcome != dedup.Duplicate {
					again++
				}
			}
			assert.Zero(t, again, "of 50 finished keys were granted again")
		})
	}
}

// TestClosedIsAfterTheLastAdd: as long as an add counts that one server answers, no process takes
// its generation for closed by the clock of another server, which may be ahead by the skew.
func TestClosedIsAfterTheLastAdd(t *testing.T) {
	_, client := redistest.Mini(t)
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, time.Hour} {
		opts := layoutOptions(fmt.Sprint("ow-", window.Milliseconds()), redisadapter.Compact)
		opts.Window = window
		s := openWith(t, redistest.Backend{Client: client}, opts)
		skew := redisadapter.Skew(s)
		edge := time.Now().Truncate(window)
		counted, closed := 0, 0
		for off := -skew; off < 4*skew; off += skew / 8 {
			at := edge.Add(off)
			if redisadapter.AddCounts(s, edge.Add(-1), at) {
				counted++
				assert.False(t, redisadapter.Closed(s, edge.Add(-1), at.Add(skew)),
					"window %v: an add counts %v after its generation, when others look no more",
					window, off)
			}
			if redisadapter.Closed(s, edge.Add(-1), at) {
				closed++
			}
		}
		assert.NotZero(t, counted, "window %v: moments that count", window)
		assert.NotZero(t, closed, "window %v: moments that are closed", window)
	}
}

// TestAddToClosedBucket: an add is executed when other processes take its generation for closed. It
// does not count, and the key is added to the current generation.
func TestAddToClosedBucket(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	opts := layoutOptions("ow", redisadapter.Compact)
	opts.Window, opts.ExpectedKeys = 2*time.Second, 10 // one shard
	mine := openWith(t, redistest.Backend{Client: client}, opts)
	other := openWith(t,
		redistest.Backend{Client: redistest.Patient(t, mini.Addr())}, opts)
	claimed := mine.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
	late := false
	client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
		next redis.ProcessPipelineHook) error {
		if has(cmds, "sadd") && !late {
			late = true
			closes := time.Now().Truncate(opts.Window).Add(opts.Window + 2*redisadapter.Skew(mine))
			<-time.After(time.Until(closes) + 20*time.Millisecond)
			learn(t, other, 40_000)
		}
		return next(ctx, cmds)
	}))
	end := done(1, claimed)
	end.Window = opts.Window
	a := mine.Finish(t.Context(), []driver.Finish{end})[0]
	require.True(t, a.Held && a.Written, "%+v", a)
	req := request(1)
	req.Token = driver.Token{9}
	a = other.Claim(t.Context(), []driver.ClaimRequest{req})[0]
	assert.True(t, late, "the add came late")
	assert.Equal(t, dedup.Duplicate, a.Outcome, "%+v", a)
}

// TestBucketTooLargeToRead: it is asked for each key, like a bucket that cannot be read at all.
func TestBucketTooLargeToRead(t *testing.T) {
	for name, refused := range map[string]bool{"too large": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			b, window := edge(t, time.Minute)
			opts := layoutOptions("large", redisadapter.Compact)
			opts.ExpectedKeys = 10 // one shard
			store := openWith(t, redistest.Backend{Client: b.client}, opts)
			season(t, store, 20_000)
			season(t, store, 30_000)
			if refused {
				refuse(b.client, "srandmember", refusal("NOPERM this user has no permissions"))
			}
			b.mini.Advance(window)
			learn(t, store, 40_000)
			n := countLooks(b.client)
			learn(t, store, 50_000)
			assert.EqualValues(t, 4*batchSize, n.one.Load(), "%d new keys", 2*batchSize)
			for i, a := range store.Claim(t.Context(), requests(20_000)) {
				require.Equal(t, dedup.Duplicate, a.Outcome, "key %d: %+v", 20_000+i, a)
			}
		})
	}
}

// TestLeasesAreDroppedTogether: one command drops the leases of a batch, except those that are not
// the claim any more.
func TestLeasesAreDroppedTogether(t *testing.T) {
	for _, problem := range []string{"", "mget", "del"} {
		t.Run("refused="+problem, func(t *testing.T) {
			b, _ := edge(t, time.Minute)
			claims := b.Claim(t.Context(), requests(100))
			ends := make([]driver.Finish, len(claims))
			for i, a := range claims {
				ends[i] = done(100+i, a)
			}
			// An owner that lost the first key long ago has landed its effect.
			landed := change(100, driver.StateSucceeded)
			landed.Token, landed.EffectApplied, landed.Fence, landed.Attempt = driver.Token{9},
				true, 1, 1
			a := b.finish(landed)
			require.True(t, a.Written && !a.Held, "%+v", a)
			single := 0
			if problem != "" {
				refuse(b.client, problem, refusal("NOPERM this user has no permissions"))
			}
			b.client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
				next redis.ProcessPipelineHook) error {
				for _, c := range cmds {
					if c.Name() == "getdel" {
						single++
					}
				}
				return next(ctx, cmds)
			}))
			for i, a := range b.Finish(t.Context(), ends) {
				assert.Equal(t, i != 0, a.Held, "key %d: %+v", 100+i, a)
			}
			if problem == "" {
				assert.Equal(t, 1, single, "leases that were dropped one by one")
			} else {
				assert.GreaterOrEqual(t, single, batchSize, "leases that were dropped one by one")
			}
			for i := range ends {
				left := b.client.Exists(t.Context(),
					redisadapter.Key(b.Store, newID(100+i))).Val()
				// the record of the owner that landed
				want := int64(min(1, max(0, 1-i)))
				assert.Equal(t, want, left, "leases of key %d that are left", 100+i)
			}
		})
	}
}
