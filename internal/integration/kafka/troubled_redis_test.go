package kafka_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

// troubledRedis is a Redis that a test can make refuse the commands of members, or close their
// connections. The oracle can always use it.
type troubledRedis struct {
	mini *miniredis.Miniredis

	mu    sync.Mutex
	away  bool
	conns map[net.Conn]bool
	hook  func(cmd string) (refusal string)
}

// memberName is the client name of the members' connections. The oracle's connections have no name,
// and commands that a script runs have none.
const memberName = "member"

// redis makes the scene's members keep their records in a Redis. Every member has a client
// of its own, and must be seenOnly: a script takes miniredis milliseconds. Nothing expires there,
// not even a lease: if keys expired, miniredis would look at all of them with every command.
func (s *scene) redis() *troubledRedis {
	s.t.Helper()
	r := &troubledRedis{mini: miniredis.RunT(s.t), conns: map[net.Conn]bool{}}
	r.mini.Server().SetPreHook(r.before)
	s.store = r.store(s.t, redis.NewClient(&redis.Options{Addr: r.mini.Addr()}))
	s.records = recordsOf(s.store)
	s.newStore = func() dedup.Store {
		return r.store(s.t, redis.NewClient(&redis.Options{
			Addr: r.mini.Addr(), Dialer: r.dial,
			OnConnect: func(ctx context.Context, c *redis.Conn) error {
				return c.ClientSetName(ctx, memberName).Err()
			},
		}))
	}
	return r
}

func (r *troubledRedis) store(t *testing.T, client *redis.Client) dedup.Store {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{OnFinding: func(preflight.Finding) {}})
	require.NoError(t, err)
	return store
}

// before sees every command, and answers those that are refused.
func (r *troubledRedis) before(peer *server.Peer, cmd string, _ ...string) bool {
	r.mu.Lock()
	hook := r.hook
	r.mu.Unlock()
	if hook == nil || peer.ClientName != memberName {
		return false
	}
	if refusal := hook(cmd); refusal != "" {
		peer.WriteError(refusal)
		return true
	}
	return false
}

func (r *troubledRedis) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		_ = conn.Close()
		return nil, errors.New("connection refused")
	}
	r.conns[conn] = true
	return conn, nil
}

// gone cuts the members off, or lets them in again.
func (r *troubledRedis) gone(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
	if away {
		for conn := range r.conns {
			_ = conn.Close()
		}
		clear(r.conns)
	}
}

// answer makes hook answer the members' commands. A nil hook answers none.
func (r *troubledRedis) answer(hook func(cmd string) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// refuseAll answers every command with this error.
func refuseAll(text string) func(string) string { return func(string) string { return text } }

// refuseWrites answers every command that may write with this error.
func refuseWrites(text string) func(string) string {
	reads := map[string]bool{"GET": true, "MGET": true, "PTTL": true, "PING": true, "HELLO": true,
		"INFO": true, "CLIENT": true, "CONFIG": true, "ROLE": true}
	return func(cmd string) string {
		if reads[cmd] {
			return ""
		}
		return text
	}
}
