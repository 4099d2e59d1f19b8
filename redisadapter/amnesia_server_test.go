package redisadapter_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
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

// noticed is the time within which a watcher must notice a loss, on a machine that may be busy.
const noticed = 5 * time.Second

// watched runs the watcher until the test ends.
func watched(t *testing.T, store *redisadapter.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Watch(ctx, 0) }()
	t.Cleanup(func() {
		cancel()
		err := <-done
		assert.ErrorIs(t, err, context.Canceled, "Watch")
	})
}

// load is a stream of messages that are delivered again until they are done. It counts their
// effects.
type load struct {
	store   *redisadapter.Store
	effects [4000]atomic.Int32
	done    [4000]atomic.Bool
	next    atomic.Int64
	refused atomic.Int64
}

// deliver takes message n through claim, effect and completion.
func (l *load) deliver(ctx context.Context, n, attempt int) {
	req := request(n)
	req.Token[8], req.Token[9] = byte(attempt), byte(attempt>>8)
	a := l.store.Claim(ctx, []driver.ClaimRequest{req})[0]
	switch a.Outcome {
	case dedup.Duplicate:
		l.done[n].Store(true)
		return
	case dedup.Acquired:
	default:
		if errors.Is(a.Err, redisadapter.ErrAmnesia) {
			l.refused.Add(1)
		}
		return
	}
	l.effects[n].Add(1)
	c := change(n, driver.StateSucceeded)
	c.Token, c.Fence, c.EffectApplied = req.Token, a.Record.Fence, true
	if l.store.Finish(ctx, []driver.Finish{c})[0].Written {
		l.done[n].Store(true)
	}
}

// run delivers from some goroutines: new messages, and old ones again.
func (l *load) run(ctx context.Context) (wait func()) {
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				n := int(l.next.Add(1))
				l.deliver(ctx, n%len(l.effects), n)
				if turn%2 == 0 {
					l.deliver(ctx, n/2%len(l.effects), n)
				}
			}
		})
	}
	return workers.Wait
}

func (l *load) started() (n int) {
	for i := range l.effects {
		if l.effects[i].Load() > 0 {
			n++
		}
	}
	return n
}

// doubled counts messages whose effect happened more than once.
func (l *load) doubled() (n int) {
	for i := range l.effects {
		if l.effects[i].Load() > 1 {
			n++
		}
	}
	return n
}

// TestFlushUnderLoad: FLUSHALL is called during a stream of redeliveries. No effect happens twice
// while the store refuses claims. When an operator has called ClearAmnesia, every message is done.
func TestFlushUnderLoad(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store, h := guarded(t, client, failClosed)
	watched(t, store)
	l := &load{store: store}
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.run(ctx)
	eventually(t, "a part is done", func() bool { return l.started() > 500 })
	must(t, client.FlushAll(t.Context()).Err())
	flushed := time.Now()
	eventually(t, "amnesia", func() bool { return h.count("amnesia") > 0 })
	took := time.Since(flushed)
	assert.LessOrEqual(t, took, noticed, "noticed after %v", took)
	before := l.refused.Load()
	eventually(t, "all is delivered again", func() bool {
		return l.refused.Load() > before+3*int64(len(l.effects))
	})
	cancel()
	wait()
	n := l.doubled()
	assert.Zero(t, n, "%d effects happened twice", n)
	must(t, redisadapter.ClearAmnesia(t.Context(), client, failClosed))
	eventually(t, "it is open", func() bool {
		return claimOne(t, store, 5000).Outcome == dedup.Acquired
	})
	for n := range l.effects {
		l.deliver(t.Context(), n, 60000)
		require.True(t, l.done[n].Load(), "message %d is lost", n)
		require.NotZero(t, l.effects[n].Load(), "message %d is lost", n)
	}
}

// TestFlushWhileIdle: the watcher notices a flush without any claim.
func TestFlushWhileIdle(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store, h := guarded(t, client, failClosed)
	watched(t, store)
	must(t, client.FlushAll(t.Context()).Err())
	flushed := time.Now()
	eventually(t, "amnesia", func() bool { return h.count("amnesia") > 0 })
	took := time.Since(flushed)
	assert.LessOrEqual(t, took, noticed, "noticed after %v", took)
	wantAmnesia(t, store, 1)
}

// TestEvictionUnderLoad: memory is full and the server evicts any key. Every batch reads the
// canary, so it is evicted last. The watcher sees the counter of evictions.
func TestEvictionUnderLoad(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store, h := guarded(t, client, failClosed)
	other, _ := reopen(t, client, failClosed)
	watched(t, store)
	must(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	must(t, client.ConfigSet(t.Context(), "maxmemory", "2500kb").Err())
	var evicted time.Time
	for first := 10000; evicted.IsZero(); first += batchSize {
		require.LessOrEqual(t, first, 60000, "nothing is evicted")
		store.Claim(t.Context(), requests(first))
		if infoOf(t, client, "stats", "evicted_keys") != "0" {
			evicted = time.Now()
		}
	}
	eventually(t, "amnesia", func() bool { return store.Health().Amnesia })
	took := time.Since(evicted)
	assert.LessOrEqual(t, took, noticed, "noticed after %v", took)
	wantAmnesia(t, store, 1)
	eventually(t, "the other process knows", func() bool {
		return errors.Is(claimOne(t, other, 2).Err, redisadapter.ErrAmnesia)
	})
	assert.NotZero(t, h.count("evicted_keys"), "findings %v", h.list)
}

// TestRestartOfGuarded: with its append-only file a restarted server has the canary, and is suspect
// for a moment. Without the file it has lost everything.
func TestRestartOfGuarded(t *testing.T) {
	for name, keep := range map[string]bool{"with its file": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Private(t, servertest.KindRedis)
			client := redistest.Client(t, &redis.Options{Addr: server.Addr, DialerRetries: 1})
			opts := failClosed
			opts.SuspectFor = suspectFor
			store, h := guarded(t, client, opts)
			wantOutcome(t, store, 1, dedup.Acquired)
			finishOne(t, store, 1)
			must(t, client.ConfigSet(t.Context(), "appendfsync", "always").Err())
			must(t, client.Set(t.Context(), "flushed", "1", 0).Err())
			dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
			server.Kill(1)
			if !keep {
				must(t, os.RemoveAll(filepath.Join(dir, "appendonlydir")))
			}
			server.Start(1)
			var first driver.Answer
			eventually(t, "it answers", func() bool {
				first = claimOne(t, store, 2)
				return redisadapter.Classify(first.Err) != "network"
			})
			assert.ErrorIs(t, first.Err, redisadapter.ErrAmnesia, "the first claim: %+v", first)
			assert.Equal(t, 1, h.count("suspect"), "findings %v", h.list)
			assert.NotEqual(t, keep, h.count("amnesia") > 0, "findings %v", h.list)
			if !keep {
				wantAmnesia(t, store, 1)
				return
			}
			wantOutcome(t, store, 1, dedup.Duplicate)
			eventually(t, "claims are granted", func() bool {
				return claimOne(t, store, 3).Outcome == dedup.Acquired
			})
		})
	}
}

// TestPromotionOfGuarded: the promoted replica has the canary, but another identity.
func TestPromotionOfGuarded(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindRedisPair)
	var to atomic.Pointer[string]
	to.Store(&server.Addrs[0])
	client := redistest.Client(t, &redis.Options{
		Addr: server.Addrs[0], DialerRetries: 1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, *to.Load())
		},
	})
	opts := failClosed
	opts.SuspectFor = suspectFor
	store, h := guarded(t, client, opts)
	wantOutcome(t, store, 1, dedup.Acquired)
	finishOne(t, store, 1)
	replica := redistest.Client(t, &redis.Options{Addr: server.Addrs[1]})
	eventually(t, "the replica has all", func() bool {
		return replica.DBSize(t.Context()).Val() == client.DBSize(t.Context()).Val()
	})
	server.Kill(1)
	must(t, replica.ReplicaOf(t.Context(), "NO", "ONE").Err())
	to.Store(&server.Addrs[1])
	var first driver.Answer
	eventually(t, "it answers", func() bool {
		first = claimOne(t, store, 2)
		return redisadapter.Classify(first.Err) != "network"
	})
	assert.ErrorIs(t, first.Err, redisadapter.ErrAmnesia, "the first claim: %+v", first)
	assert.True(t, store.Health().Suspect, "the first claim: %+v", first)
	wantOutcome(t, store, 1, dedup.Duplicate)
	eventually(t, "claims are granted", func() bool {
		return claimOne(t, store, 3).Outcome == dedup.Acquired
	})
	assert.Zero(t, h.count("amnesia"), "findings %v", h.list)
}

// TestFlushOfOneMaster: each master has a canary in its own slots.
func TestFlushOfOneMaster(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	client := redistest.Cluster(t, server.Addrs)
	for n := range 3 {
		opts := failClosed
		opts.Prefix = "ow" + string(rune('a'+n))
		store, _ := guarded(t, client, opts)
		for i, a := range store.Claim(t.Context(), requests(0)) {
			require.Equal(t, dedup.Acquired, a.Outcome, "claim %d: %+v", i, a)
		}
		one := redistest.Client(t, &redis.Options{Addr: server.Addrs[n]})
		must(t, one.FlushAll(t.Context()).Err())
		for i, a := range store.Claim(t.Context(), requests(1000)) {
			require.ErrorIs(t, a.Err, redisadapter.ErrAmnesia,
				"claim %d after the flush of node %d: %+v", i, n, a)
		}
		err := redisadapter.Init(t.Context(), client, redisadapter.Options{Prefix: opts.Prefix})
		assert.NoError(t, err, "all canaries are there again, as lost")
	}
	must(t, redisadapter.Init(t.Context(), client, redisadapter.Options{Prefix: "part"}))
	must(t, redistest.Client(t, &redis.Options{Addr: server.Addrs[0]}).FlushAll(t.Context()).Err())
	err := redisadapter.Init(t.Context(), client, redisadapter.Options{Prefix: "part"})
	assert.ErrorIs(t, err, redisadapter.ErrAmnesia, "Init where a part is missing")
}
