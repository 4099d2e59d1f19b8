package redisadapter_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// waiting opens a store that waits for one replica.
func waiting(t *testing.T, client redis.UniversalClient, prefix string,
	layout redisadapter.Layout) *redisadapter.Store {
	t.Helper()
	return waitingFor(t, 200*time.Millisecond, client, prefix, layout)
}

// waitingFor is waiting with a Timeout of patience.
func waitingFor(t *testing.T, patience time.Duration, client redis.UniversalClient, prefix string,
	layout redisadapter.Layout) *redisadapter.Store {
	t.Helper()
	opts := layoutOptions(prefix, layout)
	opts.Durability = redisadapter.Durability{Replicas: 1, Timeout: patience}
	store, err := redisadapter.New(t.Context(), client, opts)
	must(t, err)
	return store
}

// TestDurability freezes the replica. Until it is back, nothing that it has not got may count,
// however often it is sent again. Afterwards everything counts.
func TestDurability(t *testing.T) {
	// Newer servers wait for less; see wait.go in package redisscript.
	for kind, replicas := range map[servertest.Kind][]int{
		servertest.KindRedisPair: {2}, servertest.KindRedisCluster: {4, 5, 6},
		servertest.KindValkeyPair: {2}, servertest.KindValkeyCluster: {4, 5, 6}} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := servertest.Private(t, kind)
			connect := func() redis.UniversalClient {
				opts := redis.UniversalOptions{Addrs: server.Addrs[:1],
					IsClusterMode: len(server.Addrs) > 2}
				client := redis.NewUniversalClient(&opts)
				t.Cleanup(func() { must(t, client.Close()) })
				return client
			}
			for _, layout := range layouts {
				// The connections of the second store have never written when they wait, like
				// new ones of a pool.
				prefix := "ow-" + layout.String()
				frozen(t, server, replicas, waiting(t, connect(), prefix, layout),
					waiting(t, connect(), prefix, layout))
			}
		})
	}
}

func frozen(t *testing.T, server *servertest.Server, replicas []int,
	store, other *redisadapter.Store) {
	t.Helper()
	before := claimed(t, store, 20)
	for _, node := range replicas {
		server.Stop(node)
	}
	// A second send finds its own write, but the replica still does not have it.
	for _, store := range []*redisadapter.Store{store, other} {
		for i, a := range store.Finish(t.Context(), before) {
			assert.ErrorIs(t, a.Err, redisadapter.ErrNotDurable,
				"end %d without the replica: %+v", i, a)
			assert.False(t, a.Held, "end %d without the replica: %+v", i, a)
			assert.False(t, a.Written, "end %d without the replica: %+v", i, a)
			assert.True(t, dedup.CanRetry(a.Err), "end %d without the replica: %+v", i, a)
		}
	}
	fresh := freshRequests(20)
	for _, store := range []*redisadapter.Store{store, other} {
		for i, a := range store.Claim(t.Context(), fresh) {
			assert.ErrorIs(t, a.Err, redisadapter.ErrNotDurable,
				"claim %d without the replica: %+v", i, a)
			assert.Equal(t, dedup.Unknown, a.Outcome, "claim %d without the replica: %+v", i, a)
		}
	}
	for i, a := range store.Lookup(t.Context(), []driver.ID{fresh[0].ID}) {
		assert.NoError(t, a.Err, "lookup %d waits for the replica", i)
	}
	for _, node := range replicas {
		server.Cont(node)
	}
	eventually(t, "the ends", func() bool {
		for _, a := range store.Finish(t.Context(), before) {
			if a.Err != nil || !a.Held || !a.Written {
				return false
			}
		}
		return true
	})
	eventually(t, "the claims", func() bool {
		for i, a := range store.Claim(t.Context(), fresh) {
			assert.False(t, a.Err == nil && (a.Outcome != dedup.Acquired || !a.Mine),
				"claim %d with the replica: %+v", i, a)
			if a.Err != nil {
				return false // on a busy machine it may take a replica longer than Timeout
			}
		}
		return true
	})
}

func randomID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func freshRequests(n int) []driver.ClaimRequest {
	reqs := make([]driver.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = driver.ClaimRequest{ID: randomID(), Token: driver.Token(randomID()),
			Lease: time.Minute, Hold: time.Hour}
	}
	return reqs
}

// claimed sends the same claims again while the replica takes longer than Timeout.
func claimed(t *testing.T, store *redisadapter.Store, n int) []driver.Finish {
	t.Helper()
	reqs := freshRequests(n)
	changes := make([]driver.Finish, n)
	var answers []driver.Answer
	eventually(t, "claims that a replica has", func() bool {
		answers = store.Claim(t.Context(), reqs)
		return !slices.ContainsFunc(answers, func(a driver.Answer) bool {
			return errors.Is(a.Err, redisadapter.ErrNotDurable)
		})
	})
	for i, a := range answers {
		require.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
		changes[i] = driver.Finish{
			ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
			State:         driver.StateSucceeded,
			EffectApplied: true, Window: time.Hour, Until: time.Now().Add(time.Minute),
		}
	}
	return changes
}

// TestDurableConformance: with Durability the answers are the same.
func TestDurableConformance(t *testing.T) {
	primary, _ := servertest.RedisPrimary(t)
	client := redistest.Client(t, &redis.Options{Addr: primary})
	// longer than a replica needs on a busy machine
	store := waitingFor(t, 10*time.Second, client, servertest.Prefix(t), redisadapter.Full)
	deduptest.Run(t, deduptest.Harness{New: func(testing.TB) dedup.Store { return store }})
}

// TestDurabilityOptions: impossible options are refused before anything is sent. New refuses
// servers without replicas.
func TestDurabilityOptions(t *testing.T) {
	for field, d := range map[string]redisadapter.Durability{
		"Options.Durability.Replicas": {Replicas: 17},
		"Options.Durability.Timeout":  {Timeout: time.Second},
	} {
		_, err := redisadapter.New(t.Context(),
			redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
			redisadapter.Options{Durability: d})
		wantInput(t, err, field)
	}
	b := redistest.Open(t, "redis")
	for _, timeout := range []time.Duration{0, time.Microsecond} { // WAIT 1 0 would wait forever
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := redisadapter.New(ctx, b.Client, redisadapter.Options{Prefix: b.Prefix,
			Durability: redisadapter.Durability{Replicas: 1, Timeout: timeout}})
		cancel()
		assert.ErrorIs(t, err, redisadapter.ErrNotDurable, "a server without replicas, %v", timeout)
	}
}

// TestDurableWhileASlotMoves: a key that does not exist yet is claimed at the server to which its
// slot moves, and that server waits for its replica.
func TestDurableWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	store := openWith(t, redistest.Backend{Client: cluster},
		redisadapter.Options{Durability: redisadapter.Durability{Replicas: 1}})
	from, to := beginMoving(t, cluster, redisadapter.Key(store, newID(1)))
	a := claimOne(t, store, 1)
	assert.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
	slot := cluster.ClusterKeySlot(t.Context(), redisadapter.Key(store, newID(1))).Val()
	for _, node := range []*redis.Client{to, from} {
		must(t, node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "STABLE").Err())
	}
}

// TestDurableWhileItsMarkMoves: WAIT means nothing without a write before it, so the store writes a
// mark. While the mark's slot moves away, a claim that finds its own record does not count. The
// next one writes its mark in another slot.
func TestDurableWhileItsMarkMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindValkeyCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	store, other := waiting(t, cluster, "ow", redisadapter.Full),
		waiting(t, redistest.Cluster(t, server.Addrs), "ow", redisadapter.Full)
	const mark = "ow:waited:{0}"
	master, err := cluster.MasterForKey(t.Context(), mark)
	must(t, err)
	n := 1
	for node := (*redis.Client)(nil); node != master; n++ {
		node, err = cluster.MasterForKey(t.Context(), redisadapter.Key(store, newID(n+1)))
		must(t, err)
	}
	beginMoving(t, cluster, mark) // the mark is absent, so it is asked for at the other server
	for _, replica := range []int{4, 5, 6} {
		server.Stop(replica)
	}
	for _, store := range []*redisadapter.Store{store, other} {
		a := claimOne(t, store, n)
		assert.ErrorIs(t, a.Err, redisadapter.ErrNotDurable, "%+v", a)
	}
	for _, replica := range []int{4, 5, 6} {
		server.Cont(replica)
	}
	eventually(t, "a claim that a replica has", func() bool {
		return claimOne(t, other, n).Err == nil
	})
}

// TestDurableWhereMemoryIsFull: ends are written and replicated when memory is full.
func TestDurableWhereMemoryIsFull(t *testing.T) {
	server := servertest.Private(t, servertest.KindValkeyPair)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	store := waiting(t, client, "ow", redisadapter.Full)
	ends := claimed(t, store, 1)
	must(t, client.Del(t.Context(), "ow:waited").Err())
	must(t, client.ConfigSet(t.Context(), "maxmemory", "100kb").Err())
	assert.ErrorIs(t, store.Claim(t.Context(), freshRequests(1))[0].Err, driver.ErrStoreFull)
	eventually(t, "an end that a replica has", func() bool {
		a := store.Finish(t.Context(), ends)[0]
		return a.Err == nil && a.Written
	})
}

// TestDurableBatches: each master gets one pipeline. The write before its WAIT is in one of its own
// slots.
func TestDurableBatches(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		client, counts := countingCluster(t)
		store := waitingFor(t, 10*time.Second, client, servertest.Prefix(t), layout)
		store.Claim(t.Context(), requests(5000)) // each master knows the scripts afterwards
		for first := 0; ; first += batchSize {
			counts.take()
			answers := store.Claim(t.Context(), requests(first))
			pipes, _ := counts.take()
			assert.Len(t, pipes, 3)
			for addr, n := range pipes {
				assert.Equal(t, 1, n, "%s got %d pipelines", addr, n)
			}
			if !slices.ContainsFunc(answers, func(a driver.Answer) bool { return a.Err != nil }) {
				break // or it took the replicas too long
			}
		}
	})
}
