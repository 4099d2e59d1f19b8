package redis_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// cluster is a Redis Cluster of its own, with a client for each node.
type cluster struct {
	*servertest.Server
	nodes []*redis.Client
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: servertest.Private(t, servertest.KindRedisCluster)}
	for _, addr := range c.Addrs {
		c.nodes = append(c.nodes, single(t, &redis.Options{Addr: addr}))
	}
	return c
}

// advised is a client set up as redisadapter's package comment says.
func advised(t *testing.T, addrs []string) *redis.ClusterClient {
	t.Helper()
	return impatiently(t, addrs, time.Second)
}

// impatiently returns a client that asks where the slots are at intervals of wait, and waits for a
// node for that long.
func impatiently(t *testing.T, addrs []string, wait time.Duration) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, ClusterStateReloadInterval: wait, ReadTimeout: wait, DialTimeout: wait,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// id returns the Cluster's ID of a node. Nodes count from 1.
func (c *cluster) id(t *testing.T, node int) string {
	t.Helper()
	id, err := c.nodes[node-1].Do(t.Context(), "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	return id
}

// replicaOf is the node that replicates a master.
func (c *cluster) replicaOf(t *testing.T, master int) int {
	t.Helper()
	masterID := c.id(t, master)
	for node := range c.nodes {
		line := c.myself(t, node+1)
		if strings.Contains(line, "slave "+masterID) {
			return node + 1
		}
	}
	t.Fatalf("node %d has no replica", master)
	return 0
}

// myself is the line of CLUSTER NODES that a node says about itself; empty when it says nothing.
func (c *cluster) myself(t *testing.T, node int) string {
	t.Helper()
	text, err := c.nodes[node-1].ClusterNodes(t.Context()).Result()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "myself,") {
			return line
		}
	}
	return ""
}

// promoted waits until a replica has become a master.
func (c *cluster) promoted(t *testing.T, node int) {
	t.Helper()
	eventually(t, 20*time.Second, fmt.Sprintf("node %d is promoted", node), func() bool {
		return strings.Contains(c.myself(t, node), "myself,master")
	})
}

// redirections sums what the nodes answered about slots that are elsewhere.
func (c *cluster) redirections(t *testing.T) map[string]int {
	t.Helper()
	sums := make(map[string]int)
	for _, node := range c.nodes {
		text, err := node.Info(t.Context(), "errorstats").Result()
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			name, count, found := strings.Cut(strings.TrimSpace(line), ":count=")
			if !found {
				continue
			}
			n, err := strconv.Atoi(count)
			require.NoError(t, err)
			sums[strings.TrimPrefix(name, "errorstat_")] += n
		}
	}
	return sums
}

// move moves slots from a master to another, each with its keys. redis-cli moves one after the
// other. Here 250 at a time are on the move, which takes longer, so that more calls meet them.
func (c *cluster) move(t *testing.T, slots []int, from, to int) {
	t.Helper()
	fromID, toID := c.id(t, from), c.id(t, to)
	for part := range slices.Chunk(slots, 250) {
		c.set(t, to, part, "IMPORTING", fromID)
		c.set(t, from, part, "MIGRATING", toID)
		for _, slot := range part {
			c.migrate(t, slot, from, to)
		}
		// The new owner comes first: until all nodes know it, no other node may believe that it
		// owns the slot.
		for _, node := range append([]int{to, from}, c.otherMasters(from, to)...) {
			c.set(t, node, part, "NODE", toID)
		}
	}
}

// set tells a node about slots.
func (c *cluster) set(t *testing.T, node int, slots []int, state, id string) {
	t.Helper()
	_, err := c.nodes[node-1].Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, slot := range slots {
			p.Do(t.Context(), "CLUSTER", "SETSLOT", slot, state, id)
		}
		return nil
	})
	require.NoError(t, err)
}

// migrate moves the keys of a slot until none is left.
func (c *cluster) migrate(t *testing.T, slot, from, to int) {
	t.Helper()
	host, port, err := net.SplitHostPort(c.Addrs[to-1])
	require.NoError(t, err)
	for {
		keys, err := c.nodes[from-1].ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
		require.NoError(t, err)
		if len(keys) == 0 {
			return
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		require.NoError(t, c.nodes[from-1].Do(t.Context(), args...).Err())
	}
}

func (c *cluster) otherMasters(two ...int) []int {
	return slices.DeleteFunc([]int{1, 2, 3}, func(n int) bool { return slices.Contains(two, n) })
}

// TestSlotsMoveUnderLoad moves slots to another master and back, again and again, while
// messages are delivered: no error reaches the caller, nothing is lost or runs twice.
func TestSlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	work := begin(t, advised(t, c.Addrs), longLease, 0)
	slots := make([]int, moves) // the first master has slots 0 to 5460
	for i := range slots {
		slots[i] = i
	}
	rounds, met := 0, c.redirections(t)
	for ; (met["ASK"] < enoughAsked || met["MOVED"] == 0) && rounds < 200; rounds++ {
		c.move(t, slots, 1, 2)
		c.move(t, slots, 2, 1)
		met = c.redirections(t)
	}
	t.Logf("%d slots moved %d times; calls met MOVED %d times, ASK %d times", moves, 2*rounds,
		met["MOVED"], met["ASK"])
	assert.GreaterOrEqual(t, met["ASK"], enoughAsked,
		"too few calls met a slot on the move to show anything")
	assert.NotZero(t, met["MOVED"], "too few calls met a slot on the move to show anything")
	work.end(t, func(t *testing.T, l *load, v checkResult) {
		assert.Empty(t, l.troubles, "the caller saw errors: %s", l.report())
		assert.Equal(t, checkResult{}, v, "doubled or forgotten")
	})
}
