// Package redisrecords starts a private Redis for the records of a row of queuetest's fault table.
package redisrecords

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/queue/queuetest"
	"github.com/onceward/onceward/redisadapter"
)

// Start starts a Redis that its row kills and freezes. It is for queuetest.Queue.Records.
func Start(t testing.TB) queuetest.Records {
	t.Helper()
	srv := servertest.Private(t, servertest.KindRedis)
	durable(t, srv)
	return queuetest.Records{
		Open: func(t testing.TB) dedup.Store { return open(t, srv) },
		Restart: func() {
			srv.Kill(1)
			srv.Start(1)
			durable(t, srv)
		},
		Freeze: func() (thaw func()) {
			srv.Stop(1)
			return func() { srv.Cont(1) }
		},
	}
}

// durable configures the server so that a kill loses nothing that was acknowledged.
func durable(t testing.TB, srv *servertest.Server) {
	t.Helper()
	client := connect(srv)
	defer client.Close() //nolint:errcheck // of a test
	if err := client.ConfigSet(t.Context(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, srv *servertest.Server) dedup.Store {
	t.Helper()
	client := connect(srv)
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{OnFinding: func(preflight.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func connect(srv *servertest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: srv.Addr, ContextTimeoutEnabled: true,
		DialTimeout: time.Second})
}
