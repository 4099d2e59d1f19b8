package redisadapter_test

import (
	"net"
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

// TestCompactWhileASlotMoves: a slot moves during the whole test, and has buckets on both servers.
// Every call gets an answer. Every key is done once, whether it was done before, is in flight, is
// released, or fails.
func TestCompactWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	opts := layoutOptions("ow", redisadapter.Compact)
	opts.ExpectedKeys = 100 // one shard, and so one slot
	m := &onTheMove{t, openWith(t, redistest.Backend{Client: cluster}, opts)}
	m.cycle(1)
	from, to := beginMoving(t, cluster, redisadapter.Key(m.Store, newID(1)))
	m.duplicate(1)
	m.cycle(2) // its lease is new, and the bucket is not
	m.move(cluster, from, to)
	m.duplicate(1)
	m.duplicate(2)
	m.cycle(3) // all of it is new here
	m.duplicate(3)
	m.release(4)
	m.failure(5)
	slot := cluster.ClusterKeySlot(t.Context(), redisadapter.Key(m.Store, newID(1))).Val()
	for _, node := range []*redis.Client{to, from} {
		require.NoError(t, node.Do(t.Context(), "CLUSTER", "SETSLOT", slot,
			"NODE", to.ClusterMyID(t.Context()).Val()).Err())
	}
	for n := 1; n <= 3; n++ {
		m.duplicate(n)
	}
}

// onTheMove is a store whose slot moves.
type onTheMove struct {
	*testing.T
	*redisadapter.Store
}

func (m *onTheMove) want(what string, n int, ok bool, a driver.Answer) {
	m.Helper()
	assert.NoError(m, a.Err, "%s %d", what, n)
	assert.True(m, ok, "%s %d: %+v", what, n, a)
}

func (m *onTheMove) duplicate(n int) {
	m.Helper()
	r := request(n)
	r.Token[1] = 9
	a := m.Claim(m.Context(), []driver.ClaimRequest{r})[0]
	m.want("duplicate", n, a.Outcome == dedup.Duplicate, a)
}

// claims claims a key for one owner. A second owner's claim of it finds it in flight.
func (m *onTheMove) claims(n int) driver.Answer {
	m.Helper()
	first := claimOne(m.T, m.Store, n)
	m.want("claim", n, first.Outcome == dedup.Acquired, first)
	r := request(n)
	r.Token[1] = 8
	a := m.Claim(m.Context(), []driver.ClaimRequest{r})[0]
	m.want("second claim", n, a.Outcome == dedup.InFlight && a.Record.Remaining > 0, a)
	return first
}

// cycle claims a key and completes it, twice as after a lost reply.
func (m *onTheMove) cycle(n int) {
	m.Helper()
	c := done(n, m.claims(n))
	for _, what := range []string{"complete", "complete again"} {
		a := m.Finish(m.Context(), []driver.Finish{c})[0]
		m.want(what, n, a.Held && a.Written, a)
	}
}

func (m *onTheMove) release(n int) {
	m.Helper()
	c := done(n, m.claims(n))
	c.State, c.EffectApplied = driver.StateReleased, false
	a := m.Finish(m.Context(), []driver.Finish{c})[0]
	m.want("release", n, a.Held && a.Written, a)
	a = claimOne(m.T, m.Store, n)
	m.want("claim of what was released", n, a.Outcome == dedup.Acquired && a.Record.Attempt == 2, a)
}

// failure ends a claim as failed for good. The failure is stored under the key of the lease.
func (m *onTheMove) failure(n int) {
	m.Helper()
	c := done(n, m.claims(n))
	c.State, c.EffectApplied, c.Result = driver.StateFailed, false, []byte("no such account")
	a := m.Finish(m.Context(), []driver.Finish{c})[0]
	m.want("fail", n, a.Held && a.Written, a)
	r := request(n)
	r.Token[1] = 7
	a = m.Claim(m.Context(), []driver.ClaimRequest{r})[0]
	m.want("replay", n, a.Outcome == dedup.Duplicate && a.Record.State == driver.StateFailed &&
		string(a.Record.Result) == "no such account", a)
}

// move moves the slot's keys that exist.
func (m *onTheMove) move(cluster *redis.ClusterClient, from, to *redis.Client) {
	m.Helper()
	slot := int(cluster.ClusterKeySlot(m.Context(), redisadapter.Key(m.Store, newID(1))).Val())
	keys, err := from.ClusterGetKeysInSlot(m.Context(), slot, 100).Result()
	require.NoError(m, err)
	require.NotEmpty(m, keys, "nothing to move")
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(m, err)
	for _, key := range keys {
		got, err := from.Migrate(m.Context(), host, port, key, 0, time.Second).Result()
		require.NoError(m, err, "MIGRATE %s", key)
		require.Contains(m, got, "OK", "MIGRATE %s", key)
	}
}
