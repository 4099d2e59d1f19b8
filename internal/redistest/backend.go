package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/servertest"
)

// Backend is one kind of Redis.
type Backend struct {
	// Name is miniredis, redis, cluster or valkey.
	Name string
	// Client is closed when the test ends.
	Client redis.UniversalClient
	// Prefix must begin the name of every key: real servers are shared.
	Prefix string
}

// Backends are the names of those that Each runs, in its order. Open also knows valkey, for tests
// of what differs from redis.
var Backends = []string{"miniredis", "redis", "cluster"}

// Each runs test as a subtest for every kind of Redis. Where a server is missing its
// subtest is skipped, or fails when ONCEWARD_REQUIRE_SERVERS=1.
func Each(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Helper()
	for _, name := range Backends {
		t.Run(name, func(t *testing.T) { test(t, Open(t, name)) })
	}
}

// Open connects to the kind of Redis that is named.
func Open(t testing.TB, name string) Backend {
	t.Helper()
	b := Backend{Name: name, Prefix: servertest.Prefix(t)}
	switch name {
	case "miniredis":
		_, b.Client = Mini(t)
	case "redis":
		b.Client = Patient(t, servertest.Redis(t))
	case "valkey":
		b.Client = Patient(t, servertest.Valkey(t))
	case "cluster":
		b.Client = cluster(t, servertest.RedisCluster(t), patience)
	default:
		t.Fatalf("redistest: no backend %q", name)
	}
	return b
}

// Cluster returns a client of a Cluster that is closed when t ends. It looks for moved
// slots every second: see redisadapter's advice.
func Cluster(t testing.TB, addrs []string) *redis.ClusterClient {
	t.Helper()
	return cluster(t, addrs, 0)
}

// cluster returns a client whose commands take at most limit, or, if limit is zero, go-redis's
// default.
func cluster(t testing.TB, addrs []string, limit time.Duration) *redis.ClusterClient {
	t.Helper()
	// The clients of single servers keep no deadlines, and those of a Cluster do: so both ways are
	// tested.
	opts := &redis.ClusterOptions{
		Addrs: addrs, ClusterStateReloadInterval: time.Second, ContextTimeoutEnabled: true,
		ReadTimeout: limit, WriteTimeout: limit,
	}
	rules := userRules(t)
	if rules != nil {
		opts.NewClient = func(opts *redis.Options) *redis.Client { return newClient(opts, rules) }
	}
	client := redis.NewClusterClient(opts)
	if rules != nil {
		client.AddHook(marker{})
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return client
}
