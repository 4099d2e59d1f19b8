package redisadapter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// pubsubs runs a test on servers with sharded pub/sub, which miniredis does not have.
func pubsubs(t *testing.T, test func(t *testing.T, connect func() redis.UniversalClient)) {
	t.Run("redis", func(t *testing.T) {
		server := servertest.Private(t, servertest.KindRedis)
		test(t, func() redis.UniversalClient {
			return redistest.Client(t, &redis.Options{Addr: server.Addr})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		server := servertest.Private(t, servertest.KindRedisCluster)
		test(t, func() redis.UniversalClient { return redistest.Cluster(t, server.Addrs) })
	})
}

// TestWake: a listener in any process hears each end of its key, and no other listener does. That
// is so in both layouts and on every server of a Cluster.
func TestWake(t *testing.T) {
	pubsubs(t, func(t *testing.T, connect func() redis.UniversalClient) {
		for _, layout := range layouts {
			t.Run(layout.String(), func(t *testing.T) {
				b := func() redistest.Backend {
					return redistest.Backend{Client: connect(), Prefix: "ow" + layout.String()}
				}
				here, there := openAs(t, b(), layout), openAs(t, b(), layout)
				const n = 60 // in many slots
				var heard [n]atomic.Int64
				var stops []func()
				for i := range n {
					stop, err := here.Listen(t.Context(), newID(i), func() { heard[i].Add(1) })
					require.NoError(t, err)
					stops = append(stops, stop, stop) // a second call does nothing
				}
				var ids []driver.ID
				for i := range n / 2 {
					ids = append(ids, newID(i))
				}
				require.NoError(t, there.Wake(t.Context(), ids))
				count := func(from, to int) (all int64) {
					for i := from; i < to; i++ {
						all += heard[i].Load()
					}
					return all
				}
				require.Eventually(t, func() bool { return count(0, n/2) == n/2 }, 10*time.Second,
					time.Millisecond)
				for _, stop := range stops {
					stop()
				}
				require.NoError(t, there.Wake(t.Context(), ids))
				var last atomic.Int64
				for _, id := range ids { // on the same connections, after the others
					stop, err := here.Listen(t.Context(), id, func() { last.Add(1) })
					require.NoError(t, err)
					defer stop()
				}
				require.NoError(t, there.Wake(t.Context(), ids))
				require.Eventually(t, func() bool { return last.Load() >= n/2 }, 10*time.Second,
					time.Millisecond)
				assert.EqualValues(t, n/2, count(0, n), "after stop, or of another key")
			})
		}
	})
}

func openAs(t *testing.T, b redistest.Backend, layout redisadapter.Layout) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
	must(t, err)
	return store
}

// TestWakeEndsItsConnections: a second after the last listener has left, its connection is closed.
// Later listeners get a new one.
func TestWakeEndsItsConnections(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store := openAs(t, redistest.Backend{Client: client, Prefix: "ow"}, redisadapter.Full)
	subscribers := func() int {
		return len(client.PubSubShardChannels(t.Context(), "ow:*").Val())
	}
	for range 2 {
		var all sync.WaitGroup
		for i := range 1500 { // more than a connection takes
			all.Go(func() {
				stop, err := store.Listen(t.Context(), newID(i), func() {})
				if assert.NoError(t, err) {
					defer stop()
				}
			})
		}
		all.Wait()
		require.Eventually(t, func() bool { return subscribers() == 0 }, 10*time.Second,
			10*time.Millisecond)
	}
}

// TestWakeAfterACut: when a connection is cut, its listener is woken, because it may have missed an
// end. The next listener gets a new connection.
func TestWakeAfterACut(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	admin := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store := openAs(t, redistest.Backend{Client: redistest.Client(t,
		&redis.Options{Addr: server.Addr}), Prefix: "ow"}, redisadapter.Full)
	listen := func() (heard chan struct{}) {
		heard = make(chan struct{}, 1)
		stop, err := store.Listen(t.Context(), newID(1), func() { heard <- struct{}{} })
		require.NoError(t, err)
		t.Cleanup(stop)
		return heard
	}
	hears := func(heard chan struct{}) {
		select {
		case <-heard:
		case <-time.After(20 * time.Second):
			require.Fail(t, "nothing was heard")
		}
	}
	first := listen()
	killed, err := admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, killed)
	hears(first)
	second := listen()
	require.NoError(t, store.Wake(t.Context(), []driver.ID{newID(1)}))
	hears(second)
}

// TestWakeWithoutTheRight: without the right to channels both calls fail, and a Deduper polls.
func TestWakeWithoutTheRight(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	admin := redistest.Client(t, &redis.Options{Addr: server.Addr})
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels",
		"+@all").Err())
	deaf := openAs(t, redistest.Backend{Client: redistest.Client(t, &redis.Options{
		Addr: server.Addr, Username: "deaf", Password: "secret"}), Prefix: "ow"}, redisadapter.Full)
	require.ErrorContains(t, deaf.Wake(t.Context(), []driver.ID{newID(1)}), "NOPERM")
	_, err := deaf.Listen(t.Context(), newID(1), func() {})
	require.ErrorContains(t, err, "NOPERM")
	d, err := dedup.New(deaf, dedup.Config{Namespace: "test", Window: time.Hour,
		LeaseTTL: 10 * time.Second, Wait: 30 * time.Second})
	require.NoError(t, err)
	c, err := d.Claim(t.Context(), "k")
	require.NoError(t, err)
	waiter, err := dedup.New(deaf, d.Config())
	require.NoError(t, err)
	got := make(chan *dedup.Claim, 1)
	go func() {
		c, err := waiter.Claim(t.Context(), "k")
		assert.NoError(t, err)
		got <- c
	}()
	require.NoError(t, c.Complete(t.Context(), nil))
	assert.Equal(t, dedup.Duplicate, (<-got).Outcome)
}

// TestListenEndsWithItsContext: Listen returns with its context if the server does not answer.
func TestListenEndsWithItsContext(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	admin := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store := openAs(t, redistest.Backend{Client: redistest.Client(t,
		&redis.Options{Addr: server.Addr}), Prefix: "ow"}, redisadapter.Full)
	require.NoError(t, admin.ClientPause(t.Context(), time.Second).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := store.Listen(ctx, newID(1), func() {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	stop, err := store.Listen(t.Context(), newID(1), func() {})
	require.NoError(t, err)
	stop()
}

// BenchmarkWaiter measures the time from an end to the answer of a waiter in another process.
func BenchmarkWaiter(b *testing.B) {
	for _, name := range []string{"redis", "cluster"} {
		for _, news := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/news=%t", name, news), func(b *testing.B) {
				benchWaiter(b, name, news)
			})
		}
	}
}

func benchWaiter(b *testing.B, name string, news bool) {
	backend := redistest.Open(b, name)
	store := func() dedup.Store {
		s, err := redisadapter.New(b.Context(), backend.Client,
			redisadapter.Options{Prefix: backend.Prefix, Layout: redisadapter.Full})
		require.NoError(b, err)
		if news {
			return s
		}
		return struct{ dedup.Store }{s}
	}
	cfg := dedup.Config{Namespace: "bench", Window: time.Hour, LeaseTTL: 30 * time.Second,
		Wait: 20 * time.Second}
	owner, err := dedup.New(store(), cfg)
	require.NoError(b, err)
	other, err := dedup.New(store(), cfg)
	require.NoError(b, err)
	var late []time.Duration
	for b.Loop() {
		key := fmt.Sprint("k", len(late))
		c, err := owner.Claim(b.Context(), key)
		require.NoError(b, err)
		answered := make(chan time.Time, 1)
		go func() {
			_, err := other.Claim(b.Context(), key)
			assert.NoError(b, err)
			answered <- time.Now()
		}()
		<-time.After(900*time.Millisecond + rand.N(200*time.Millisecond)) // the handler's work
		require.NoError(b, c.Complete(b.Context(), nil))
		ended := time.Now()
		late = append(late, max(0, (<-answered).Sub(ended)))
	}
	slices.Sort(late)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(late[len(late)/2].Microseconds()), "median-us")
	b.ReportMetric(float64(late[len(late)-1].Microseconds()), "worst-us")
}
