// Package peer holds what Onceward is compared with: bare commands through the common clients, and
// libraries that people use for the same job. Every peer remembers a new key, and fails with
// [must.Do] if a key is not new, unless its name says otherwise.
package peer

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// These are the times of every side, including ours. The window is so long that nothing expires
// while it is timed, and so short that buckets are dropped as in practice.
const (
	Lease  = 10 * time.Second
	Window = 10 * time.Minute
	token  = "0123456789abcdef0123456789ab" // of an owner: as long as a random one in text form
	done   = "1"
)

// Cycle claims one new key and marks it done.
type Cycle func(ctx context.Context, key string)

// Batch does the cycles of a batch, in one of several workers.
type Batch func(ctx context.Context, worker int, keys []string)

// Peer is one way of doing cycles one by one.
type Peer struct {
	Name  string
	Cycle Cycle
}

var errNotNew = errors.New("the key is not new")

func isNew(key string, holds bool, err error) {
	if !holds {
		must.Do(err)
		must.Do(fmt.Errorf("%s: %w", key, errNotNew))
	}
}

// absent fails unless the key did not exist.
func absent(key string, err error) { isNew(key, errors.Is(err, redis.Nil), err) }

// Naive is what people write first: GET, SET NX, SET, in three round trips.
func Naive(client redis.Cmdable) Peer {
	return Peer{Name: "naive GET, SET NX, SET", Cycle: func(ctx context.Context, key string) {
		absent(key, client.Get(ctx, key).Err())
		must.Do(client.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: Lease}).Err())
		must.Do(client.Set(ctx, key, done, Window).Err())
	}}
}

// Plain is the least that is correct: SET NX GET PX, then SET GET PX, in two round trips.
func Plain(client redis.Cmdable) Peer {
	return Peer{Name: "plain go-redis", Cycle: func(ctx context.Context, key string) {
		absent(key, client.SetArgs(ctx, key, token,
			redis.SetArgs{Mode: "NX", Get: true, TTL: Lease}).Err())
		old, err := client.SetArgs(ctx, key, done, redis.SetArgs{Get: true, TTL: Window}).Result()
		must.Do(err)
		if old != token {
			must.Do(fmt.Errorf("%s: the claim was lost", key))
		}
	}}
}

// AutoPipeline is Plain through the coalescer of go-redis, which is experimental there.
func AutoPipeline(s *harness.Setup, client *redis.Client) Peer {
	ap := must.Get(client.AutoPipeline())
	s.Defer(ap.Close)
	return Peer{Name: "go-redis AutoPipeline", Cycle: Plain(ap).Cycle}
}

// GoRedisBatch does a batch in the two pipelines of Plain, with SetArgs of go-redis.
func GoRedisBatch(client *redis.Client) Batch {
	return func(ctx context.Context, _ int, keys []string) {
		claim, complete := client.Pipeline(), client.Pipeline()
		for _, key := range keys {
			claim.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", Get: true, TTL: Lease})
			complete.SetArgs(ctx, key, done, redis.SetArgs{Get: true, TTL: Window})
		}
		claimed, err := claim.Exec(ctx)
		if len(claimed) != len(keys) {
			must.Do(err)
		}
		for i, cmd := range claimed {
			absent(keys[i], cmd.Err())
		}
		must.Get(complete.Exec(ctx))
	}
}

// Redislock is bsm/redislock as people use it: four round trips, two of them scripts.
func Redislock(client *redis.Client) Peer {
	locker := redislock.New(client)
	return Peer{Name: "redislock: GET, Obtain, SET, Release",
		Cycle: func(ctx context.Context, key string) {
			absent(key, client.Get(ctx, key).Err())
			lock := must.Get(locker.Obtain(ctx, key+":lock", Lease, nil))
			must.Do(client.Set(ctx, key, done, Window).Err())
			must.Do(lock.Release(ctx))
		}}
}

// Redsync only locks and unlocks: the least that a design with locks costs. It remembers nothing.
func Redsync(client *redis.Client) Peer {
	rs := redsync.New(goredis.NewPool(client))
	return Peer{Name: "redsync: Lock, Unlock (remembers nothing)",
		Cycle: func(ctx context.Context, key string) {
			mutex := rs.NewMutex(key, redsync.WithExpiry(Lease), redsync.WithTries(1))
			must.Do(mutex.LockContext(ctx))
			must.Get(mutex.UnlockContext(ctx))
		}}
}

// Fiber is the sequence of fiber's idempotency middleware, on fiber's storage and its lock within
// this process, without the HTTP request around it.
func Fiber(client *redis.Client) Peer {
	storage, lock := fiberredis.NewFromConnection(client), idempotency.NewMemoryLock()
	look := func(ctx context.Context, key string) {
		isNew(key, must.Get(storage.GetWithContext(ctx, key)) == nil, nil)
	}
	return Peer{Name: "fiber idempotency sequence (lock in process)",
		Cycle: func(ctx context.Context, key string) {
			look(ctx, key)
			must.Do(lock.Lock(key))
			look(ctx, key)
			must.Do(storage.SetWithContext(ctx, key, []byte(done), Window))
			must.Do(lock.Unlock(key))
		}}
}

// Watermill is watermill's deduplicator middleware with the only repository that watermill
// includes: a map in this process, which a restart empties. It marks a message before its handler
// has run.
func Watermill() Peer {
	dedup := &middleware.Deduplicator{
		KeyFactory: middleware.NewMessageHasherFromMetadataField("id"),
		Repository: must.Get(middleware.NewMapExpiringKeyRepository(Window)),
		Timeout:    time.Minute,
	}
	return Peer{Name: "watermill deduplicator (in process)",
		Cycle: func(ctx context.Context, key string) {
			msg := message.NewMessage(key, nil)
			msg.SetContext(ctx)
			msg.Metadata.Set("id", key)
			isNew(key, !must.Get(dedup.IsDuplicate(msg)), nil)
		}}
}

// Map is the least that an answer from memory can cost: a map behind a mutex, with expiries.
type Map struct {
	mu   sync.Mutex
	keys map[string]time.Time
}

// NewMap returns a map that remembers keys for the Window.
func NewMap(keys []string) *Map {
	m, until := &Map{keys: make(map[string]time.Time, len(keys))}, time.Now().Add(Window)
	for _, key := range keys {
		m.keys[key] = until
	}
	return m
}

// Seen reports whether the map remembers key.
func (m *Map) Seen(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.keys[key]
	return ok && time.Now().Before(until)
}

// Rueidis sends the two commands through rueidis, which pipelines the commands of concurrent
// callers by itself. flushDelay is its MaxFlushDelay: how long it may wait for more commands.
func Rueidis(s *harness.Setup, addr string, flushDelay time.Duration) Peer {
	name := "rueidis"
	if flushDelay > 0 {
		name += fmt.Sprint(", MaxFlushDelay ", flushDelay)
	}
	client := RueidisClient(s, addr, flushDelay)
	return Peer{Name: name, Cycle: func(ctx context.Context, key string) {
		wasNew(key, client.Do(ctx, claimCommand(client, key)))
		must.Get(client.Do(ctx, completeCommand(client, key)).ToString())
	}}
}

// RueidisClient connects until the setup ends, without client-side caching: no key is read twice
// here.
func RueidisClient(s *harness.Setup, addr string, flushDelay time.Duration) rueidis.Client {
	client := must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr},
		DisableCache: true, MaxFlushDelay: flushDelay, ConnWriteTimeout: 30 * time.Second}))
	s.Defer(func() error { client.Close(); return nil })
	return client
}

// RueidisBatch does a batch in two calls of DoMulti.
func RueidisBatch(client rueidis.Client) Batch {
	return func(ctx context.Context, _ int, keys []string) {
		cmds := make(rueidis.Commands, len(keys))
		for i, key := range keys {
			cmds[i] = claimCommand(client, key)
		}
		for i, reply := range client.DoMulti(ctx, cmds...) {
			wasNew(keys[i], reply)
		}
		for i, key := range keys {
			cmds[i] = completeCommand(client, key)
		}
		for _, reply := range client.DoMulti(ctx, cmds...) {
			must.Do(reply.Error())
		}
	}
}

func claimCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(token).Nx().Get().PxMilliseconds(
		Lease.Milliseconds()).Build()
}

func completeCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(done).Get().PxMilliseconds(Window.Milliseconds()).Build()
}

func wasNew(key string, reply rueidis.RedisResult) {
	_, err := reply.ToString()
	isNew(key, rueidis.IsRedisNil(err), err)
}

// LoadGenerator is the program of [RedisBenchmark].
const LoadGenerator = "redis-benchmark"

// RedisBenchmark runs Redis's own load generator with single SETs, depth of them in one pipeline,
// and returns SETs per second. That is the limit of the server, measured in C by its authors, for
// half a cycle.
func RedisBenchmark(ctx context.Context, addr string, depth, requests int) float64 {
	host, port, err := net.SplitHostPort(addr)
	must.Do(err)
	out := must.Get(exec.CommandContext(ctx, LoadGenerator, "-h", host, "-p", port, "-c", "50",
		"-P", strconv.Itoa(depth), "-n", strconv.Itoa(requests), "-r", "1000000000", "--csv",
		"SET", "bench:redis-benchmark:__rand_int__", token, "NX",
		"PX", strconv.FormatInt(Lease.Milliseconds(), 10)).Output())
	return must.Get(parseRedisBenchmark(string(out)))
}

// parseRedisBenchmark reads the rate of the only test, which stands below the column "rps".
func parseRedisBenchmark(text string) (rate float64, err error) {
	defer must.Catch(&err)
	records := must.Get(csv.NewReader(strings.NewReader(text)).ReadAll())
	must.True(len(records) == 2, "peer: redis-benchmark: want a header and a result: %.200q", text)
	column := slices.Index(records[0], "rps")
	must.True(column >= 0, "peer: redis-benchmark: no column rps in %q", records[0])
	rate = must.Get(strconv.ParseFloat(records[1][column], 64))
	must.True(rate > 0, "peer: redis-benchmark: rate %q", records[1][column])
	return rate, nil
}
