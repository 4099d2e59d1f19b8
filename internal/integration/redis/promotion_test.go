package redis_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// pair is a primary and its replica, behind a name that an operator moves.
type pair struct {
	*servertest.Server
	nodes  [2]*redis.Client
	client *redis.Client
	// target is the node that the name leads to, from 0.
	target atomic.Int32
}

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{Server: servertest.Private(t, servertest.KindRedisPair)}
	for i, addr := range p.Addrs {
		p.nodes[i] = single(t, &redis.Options{Addr: addr})
	}
	var dial net.Dialer
	p.client = single(t, &redis.Options{
		Addr: "primary.example:6379", DialTimeout: time.Second, ReadTimeout: time.Second,
		DialerRetries: 1,
		// The name is looked up for every connection. Older connections are closed when their
		// server dies, or soon because of their age.
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, network, p.Addrs[p.target.Load()])
		},
		ConnMaxLifetime: 200 * time.Millisecond,
	})
	return p
}

// promote makes the replica a primary.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	require.NoError(t, p.nodes[1].Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
}

// follow leads the client to the second node.
func (p *pair) follow() { p.target.Store(1) }

// swap exchanges the two; the client keeps talking to the first.
func (p *pair) swap(t *testing.T) {
	t.Helper()
	p.promote(t)
	host, port, err := net.SplitHostPort(p.Addrs[1])
	require.NoError(t, err)
	require.NoError(t, p.nodes[0].Do(t.Context(), "REPLICAOF", host, port).Err())
}

// replicated waits until the replica has what the primary has.
func (p *pair) replicated(t *testing.T) {
	t.Helper()
	n, err := p.nodes[0].Wait(t.Context(), 1, 10*time.Second).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "replicas that acknowledged")
}

// crashes is how often a worker dies between claim and effect in the tests of promotions:
// a store that took such a claim for done would lose the message.
const crashes = 50

// TestPromotionOfAReplica kills the primary of a pair while messages are delivered, and has
// an operator promote its replica. The primary does not wait for its replica, so records that were
// acknowledged just before may be gone: their messages would run again. No message is lost.
func TestPromotionOfAReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	fresh := probe(t, p.client)
	work := begin(t, p.client, shortLease, crashes)
	p.Kill(1)
	killed := time.Now()
	p.promote(t)
	p.follow()
	recovered(t, fresh, killed)
	work.through(t, "promotion")
	work.end(t, wantSafe)
}

// TestSentinel kills the primary, or has it exchanged for its replica, while messages are
// delivered. Clients learn of it only from Sentinel.
func TestSentinel(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name string
		hit  func(*testing.T, *servertest.Server)
	}{
		{"primary killed", func(_ *testing.T, s *servertest.Server) { s.Kill(1) }},
		{"failover asked for", func(t *testing.T, s *servertest.Server) {
			require.NoError(t, single(t, &redis.Options{Addr: s.Addrs[2]}).Do(t.Context(),
				"SENTINEL",
				"FAILOVER", "onceward").Err())
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Private(t, servertest.KindRedisSentinel)
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "onceward", SentinelAddrs: server.Addrs[2:], ReadTimeout: time.Second,
				DialTimeout: time.Second,
			})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			fresh := probe(t, client)
			work := begin(t, client, shortLease, crashes)
			fault.hit(t, server)
			hit := time.Now()
			second := single(t, &redis.Options{Addr: server.Addrs[1]})
			eventually(t, 20*time.Second, "the replica is promoted", func() bool {
				return isMaster(t, second)
			})
			recovered(t, fresh, hit)
			work.through(t, "promotion")
			work.end(t, wantSafe)
		})
	}
}
