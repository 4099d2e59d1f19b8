package redisadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestWatchAfterAFailover: a master that has become a replica needs no canary.
func TestWatchAfterAFailover(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: server.Addrs,
		ClusterStateReloadInterval: time.Second})
	t.Cleanup(func() { must(t, cluster.Close()) })
	store, h := guarded(t, cluster, redisadapter.Options{Amnesia: redisadapter.FailClosed})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Watch(ctx, 20*time.Millisecond) }()
	replica := redistest.Client(t, &redis.Options{Addr: server.Addrs[5]})
	eventually(t, "a failover", func() bool {
		return replica.Do(ctx, "CLUSTER", "FAILOVER").Err() == nil
	})
	eventually(t, "it is noticed", func() bool { return h.count("suspect") > 0 })
	begin := time.Now()
	eventually(t, "the client's picture is new", func() bool {
		return time.Since(begin) > 2*time.Second
	})
	cancel()
	<-done
	assert.Zero(t, h.count("canary_not_everywhere"), "findings %v", h.list)
	assert.Zero(t, h.count("amnesia"), "findings %v", h.list)
}
