package redisadapter_test

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestListWhileASlotMoves: the new master lists keys that it has already got, but redirects reads
// of them until the slot is its own. The listing continues.
func TestListWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	store := open(t, redistest.Backend{Client: cluster, Prefix: "ow"})
	ctx := t.Context()
	wantOutcome(t, store, 1, dedup.Acquired)
	key := redisadapter.Key(store, newID(1))

	from, to := beginMoving(t, cluster, key)
	host, port, err := net.SplitHostPort(to.Options().Addr)
	must(t, err)
	must(t, from.Do(ctx, "MIGRATE", host, port, key, 0, 5000).Err())

	found := 0
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		page, err := store.List(ctx, redisadapter.ListOptions{Cursor: cursor})
		must(t, err)
		for _, e := range page.Entries {
			if e.ID == newID(1) && e.Record.State == driver.StateInProgress {
				found++
			}
		}
		cursor = page.Cursor
	}
	assert.Equal(t, 1, found, "listed %d times", found)
}

// beginMoving begins to move the slot of a key to another master.
func beginMoving(t *testing.T, cluster *redis.ClusterClient, key string) (from, to *redis.Client) {
	t.Helper()
	ctx := t.Context()
	from, err := cluster.MasterForKey(ctx, key)
	must(t, err)
	for n := byte('a'); to == nil || to == from; n++ {
		to, err = cluster.MasterForKey(ctx, string(n))
		must(t, err)
	}
	slot := cluster.ClusterKeySlot(ctx, key).Val()
	must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	must(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())
	return from, to
}
