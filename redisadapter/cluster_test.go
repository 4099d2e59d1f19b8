package redisadapter_test

import (
	"context"
	"maps"
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

// perNode counts the pipelines that each node gets.
type perNode struct {
	mu    sync.Mutex
	pipes map[string]int
	cmds  map[string]int
}

type nodeHook struct {
	all  *perNode
	addr string
}

func (h nodeHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.all.mu.Lock()
		h.all.pipes[h.addr]++
		h.all.cmds[h.addr] += len(cmds)
		h.all.mu.Unlock()
		return next(ctx, cmds)
	}
}

func (p *perNode) take() (pipes, cmds map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pipes, cmds = p.pipes, p.cmds
	p.pipes, p.cmds = make(map[string]int), make(map[string]int)
	return pipes, cmds
}

// countingCluster is a client of the shared Cluster that counts what it sends to each node.
func countingCluster(t *testing.T) (*redis.ClusterClient, *perNode) {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servertest.RedisCluster(t),
		ClusterStateReloadInterval: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	counts := &perNode{}
	counts.take()
	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(nodeHook{counts, node.Options().Addr})
	})
	return client, counts
}

// TestClusterBatches prevents a batch from costing a round trip per slot: 1,024 keys over
// about as many slots are one pipeline for each master.
func TestClusterBatches(t *testing.T) {
	client, counts := countingCluster(t)
	store := open(t, redistest.Backend{Client: client, Prefix: servertest.Prefix(t)})

	var reqs []driver.ClaimRequest
	var ends []driver.Finish
	for first := 0; first < 1024; first += batchSize {
		reqs, ends = append(reqs, requests(first)...),
			append(ends, changes(first, driver.StateSucceeded)...)
	}
	store.Claim(t.Context(), requests(5000)) // each master knows the scripts afterwards
	store.Finish(t.Context(), changes(5000, driver.StateSucceeded))
	counts.take()
	wantSpread := func(call string) {
		t.Helper()
		pipes, cmds := counts.take()
		assert.Len(t, pipes, 3, "%s: %d nodes", call, len(pipes))
		sum := 0
		for addr, n := range cmds {
			sum += n
			assert.GreaterOrEqual(t, n, 200,
				"%s: %s got %d commands in %d pipelines", call, addr, n, pipes[addr])
			assert.Equal(t, 1, pipes[addr],
				"%s: %s got %d commands in %d pipelines", call, addr, n, pipes[addr])
		}
		assert.Equal(t, 1024, sum, "%s: %d commands: %v", call, sum, maps.Clone(cmds))
	}
	for i, a := range store.Claim(t.Context(), reqs) {
		require.Equal(t, dedup.Acquired, a.Outcome, "claim %d: %+v", i, a)
	}
	wantSpread("Claim")
	for i, a := range store.Finish(t.Context(), ends) {
		require.True(t, a.Held, "finish %d: %+v", i, a)
		require.True(t, a.Written, "finish %d: %+v", i, a)
	}
	wantSpread("Finish")
}

// TestKeysKeepTheirSlot: the braces hold the digest alone, so that every key next to a record
// shares its slot, under any prefix.
func TestKeysKeepTheirSlot(t *testing.T) {
	client := redistest.Cluster(t, servertest.RedisCluster(t))
	for _, prefix := range []string{"a", servertest.Prefix(t)} {
		store := open(t, redistest.Backend{Client: client, Prefix: prefix})
		for n := range 50 {
			key := redisadapter.Key(store, newID(n))
			record, err := client.ClusterKeySlot(t.Context(), key).Result()
			must(t, err)
			beside, err := client.ClusterKeySlot(t.Context(),
				"other:"+key[len(prefix)+1:]+":steps").Result()
			must(t, err)
			assert.Equal(t, beside, record,
				"%s is in slot %d, what is beside it in %d", key, record, beside)
		}
	}
}

// TestSingleClientOfACluster is the usual mistake of UniversalOptions with one address.
func TestSingleClientOfACluster(t *testing.T) {
	client := redistest.Client(t, &redis.Options{Addr: servertest.RedisCluster(t)[0]})
	_, err := redisadapter.New(t.Context(), client, redisadapter.Options{})
	assert.Error(t, err, "New accepts a client that cannot follow the slots")
}
