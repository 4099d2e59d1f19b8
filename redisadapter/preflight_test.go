package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// healthy returns the INFO of a server without a problem.
func healthy() map[string]string {
	return map[string]string{
		"redis_version": "7.0.15", "redis_mode": "standalone", "run_id": "r1", "role": "master",
		"loading":   "0",
		"maxmemory": "1000000", "maxmemory_policy": "noeviction", "used_memory": "1000",
		"evicted_keys": "0",
		"aof_enabled":  "1", "aof_last_write_status": "ok", "connected_slaves": "0",
		"master_replid": "p1",
	}
}

// infoReply returns the raw reply to INFO of a healthy server, except for the given fields.
func infoReply(fields map[string]string) string {
	all := healthy()
	maps.Copy(all, fields)
	text := "# Server\r\n"
	for name, value := range all {
		text += name + ":" + value + "\r\n"
	}
	return redistest.Bulk(text)
}

// infoServer is a server that answers INFO with what reply returns.
func infoServer(t *testing.T, reply func() string) *redis.Options {
	opts := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return reply()
		case "TIME":
			return "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
		}
		return redistest.Answer("absent", 0, 0, "")
	})
	opts.ContextTimeoutEnabled = true
	return opts
}

func codes(findings []preflight.Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, f.Code)
	}
	return out
}

// TestPreflight: each problem has a code, and a healthy server has none. New refuses a server that
// evicts or cannot work, and reports the rest. With Strict it refuses every risk of losing data.
func TestPreflight(t *testing.T) {
	type fields = map[string]string
	replica := fields{"role": "slave", "master_host": "10.0.0.1", "master_port": "6379",
		"master_link_status": "up"}
	for name, c := range map[string]struct {
		fields      fields
		want        string
		severity    preflight.Severity
		lax, strict bool // refused
		detail      string
	}{
		"healthy": {fields{}, "", 0, false, false, ""},
		"newest":  {fields{"redis_version": "10.1.0"}, "", 0, false, false, ""},
		"valkey": {fields{"redis_version": "7.2.4", "server_name": "valkey",
			"valkey_version": "8.1.0"}, "", 0, false, false, ""},
		"allkeys-lru": {fields{"maxmemory_policy": "allkeys-lru"},
			"eviction_policy", preflight.Critical, true, true, "allkeys-lru"},
		"volatile-ttl": {fields{"maxmemory_policy": "volatile-ttl"},
			"eviction_policy", preflight.Critical, true, true, "volatile-ttl"},
		"volatile-lru": {fields{"maxmemory_policy": "volatile-lru"},
			"eviction_policy", preflight.Critical, true, true, "volatile-lru"},
		"a policy to come": {fields{"maxmemory_policy": "allkeys-lrm"},
			"eviction_policy", preflight.Critical, true, true, "allkeys-lrm"},
		"and no limit": {fields{"maxmemory_policy": "allkeys-lru", "maxmemory": "0"},
			"eviction_policy_unlimited", preflight.Warning, false, false, "allkeys-lru"},
		"policy is not said": {fields{"maxmemory_policy": ""}, "not_learned",
			preflight.Warning, false, false, "maxmemory_policy"},
		"limit is not said": {fields{"maxmemory_policy": "allkeys-lru", "maxmemory": ""},
			"not_learned", preflight.Warning, false, false, "maxmemory"},
		"version is not said": {fields{"redis_version": ""}, "not_learned",
			preflight.Warning, false, false, "redis_version"},
		"no persistence": {fields{"aof_enabled": "0"}, "no_persistence",
			preflight.Warning, false, true, "appendonly"},
		"and replicas": {fields{"aof_enabled": "0", "connected_slaves": "2"},
			"no_persistence_with_replicas", preflight.Critical, false, true, "2 replicas"},
		"append fails": {fields{"aof_last_write_status": "err"},
			"append_failed", preflight.Warning, false, true, "err"},
		"redis 6": {fields{"redis_version": "6.2.14"}, "version",
			preflight.Critical, true, true, "6.2.14"},
		"valkey 7.1": {fields{"redis_version": "7.2.4", "server_name": "valkey",
			"valkey_version": "7.1.9"}, "version", preflight.Critical, true,
			true, "Valkey"},
		"replica": {replica, "replica_role", preflight.Critical, true,
			true, "10.0.0.1:6379"},
		"replica, new name": {fields{"role": "replica"}, "replica_role",
			preflight.Critical, true, true, "replica"},
		"loading": {fields{"loading": "1"}, "loading",
			preflight.Critical, false, true, "reading"},
		"no maxmemory": {fields{"maxmemory": "0"}, "no_maxmemory",
			preflight.Note, false, false, "0"},
		"nearly full": {fields{"used_memory": "910000"}, "memory_near_limit",
			preflight.Warning, false, false, "910000"},
		"has evicted": {fields{"evicted_keys": "7"}, "evicted_keys",
			preflight.Warning, false, true, "7 keys"},
		"replica is syncing": {fields{"connected_slaves": "1",
			"slave0": "ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0"},
			"replica_link", preflight.Warning, false, false, "wait_bgsave"},
		"replica lags": {fields{"connected_slaves": "1",
			"slave0": "ip=10.0.0.2,port=6379,state=online,offset=0,lag=60"},
			"replica_link", preflight.Warning, false, false, "60 s"},
		"replica is well": {fields{"connected_slaves": "1",
			"slave0": "ip=10.0.0.2,port=6379,state=online,offset=9,lag=1"}, "", 0, false,
			false, ""},
		"90 % is not too much": {fields{"used_memory": "900000"}, "", 0, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Client(t, infoServer(t, func() string {
				return infoReply(c.fields)
			}))
			found, err := redisadapter.Preflight(t.Context(), client)
			must(t, err)
			want := []string{}
			if c.want != "" {
				want = append(want, c.want)
			}
			if c.want == "eviction_policy_unlimited" {
				want = append(want, "no_maxmemory")
				// the server has the problem of the row "no maxmemory"
				found[1].Detail, found[1].Severity = c.detail, c.severity
			}
			require.Equal(t, want, codes(found), "found %v, want %v", found, want)
			for _, f := range found {
				assert.Equal(t, c.severity, f.Severity, "%+v", f)
				assert.Contains(t, f.Detail, c.detail, "%+v", f)
				assert.Equal(t, client.Options().Addr, f.Server, "%+v", f)
				assert.NotEmpty(t, f.Why, "%+v", f)
				assert.NotEmpty(t, f.Fix, "%+v", f)
			}
			for strict, refused := range map[bool]bool{false: c.lax, true: c.strict} {
				var heard []preflight.Finding
				_, err := redisadapter.New(t.Context(), client, redisadapter.Options{
					Strict: strict, OnFinding: func(f preflight.Finding) {
						heard = append(heard, f)
					},
				})
				var refusal *redisadapter.RefusedError
				switch {
				case refused && (!errors.As(err, &refusal) ||
					!slices.Equal(codes(refusal.Findings), want)):
					t.Errorf("strict %t: error %v", strict, err)
				case !refused && (err != nil || !slices.Equal(codes(heard), want)):
					t.Errorf("strict %t: error %v, heard %v", strict, err, heard)
				}
			}
		})
	}
}

// TestPreflightPlaintext: without TLS only a server on the same machine is safe. The dialer
// connects every address to a server on loopback.
func TestPreflightPlaintext(t *testing.T) {
	fake := infoServer(t, func() string { return infoReply(nil) })
	for addr, plaintext := range map[string]bool{
		"10.1.2.3:6379": true, "redis.internal:6379": true, "[2001:db8::1]:6379": true,
		"localhost.example.com:6379": true,
		"127.0.0.1:6379":             false, "127.8.8.8:6379": false, "[::1]:6379": false,
		"localhost:6379": false,
	} {
		t.Run(addr, func(t *testing.T) {
			opts := *fake
			opts.Addr = addr
			opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", fake.Addr)
			}
			client := redistest.Client(t, &opts)
			found, err := redisadapter.Preflight(t.Context(), client)
			must(t, err)
			assert.Equal(t, plaintext, slices.Contains(codes(found), "plaintext"),
				"found %v", found)
			assert.LessOrEqual(t, len(found), 1, "found %v", found)
			_, err = redisadapter.New(t.Context(), client, redisadapter.Options{Strict: true})
			assert.Equal(t, plaintext, err != nil, "strict: %v", err)
		})
	}
}

// led is a connection that reports another remote address.
type led struct {
	net.Conn
	to net.Addr
}

// RemoteAddr implements net.Conn.
func (l led) RemoteAddr() net.Addr { return l.to }

// TestPreflightBySentinel: a client that asks Sentinels does not know its server's address. A local
// server must not be taken for a remote one, nor a remote one for a local one.
func TestPreflightBySentinel(t *testing.T) {
	server := infoServer(t, func() string { return infoReply(nil) })
	for master, plaintext := range map[string]bool{"127.0.0.1": false, "10.1.2.3": true} {
		t.Run(master, func(t *testing.T) {
			sentinel := redistest.Fake(t, func(args []string) string {
				switch {
				case strings.EqualFold(args[0], "subscribe"): // nothing is ever published
					var all strings.Builder
					for i, channel := range args[1:] {
						fmt.Fprintf(&all, "*3\r\n%s%s:%d\r\n", redistest.Bulk("subscribe"),
							redistest.Bulk(channel), i+1)
					}
					return all.String()
				case len(args) == 3 && strings.EqualFold(args[1], "get-master-addr-by-name"):
					return "*2\r\n" + redistest.Bulk(master) + redistest.Bulk("6379")
				}
				return "*0\r\n"
			})
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "onceward", SentinelAddrs: []string{sentinel.Addr},
				Protocol: server.Protocol, ContextTimeoutEnabled: true,
				Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
					to := server.Addr
					if addr == sentinel.Addr {
						to = addr
					}
					conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
					if err != nil {
						return nil, err
					}
					return led{conn, &net.TCPAddr{IP: net.ParseIP(strings.Split(addr, ":")[0]),
						Port: 6379}}, nil
				},
			})
			t.Cleanup(func() { must(t, client.Close()) })
			found, err := redisadapter.Preflight(t.Context(), client)
			must(t, err)
			assert.Equal(t, plaintext, slices.Contains(codes(found), "plaintext"),
				"found %v", found)
			assert.False(t, plaintext && found[0].Server != master+":6379", "found %v", found)
			_, err = redisadapter.New(t.Context(), client, redisadapter.Options{Strict: true})
			assert.Equal(t, plaintext, err != nil, "strict: %v", err)
		})
	}
}

// TestPreflightOfClusterClient: with some settings a client reads from replicas, or notices a
// failover only after a minute.
func TestPreflightOfClusterClient(t *testing.T) {
	addrs := servertest.RedisCluster(t)
	for name, c := range map[string]struct {
		opts redis.ClusterOptions
		want string
	}{
		"good":    {redis.ClusterOptions{ClusterStateReloadInterval: time.Second}, ""},
		"default": {redis.ClusterOptions{}, "cluster_reload_interval"},
		"read-only": {redis.ClusterOptions{ClusterStateReloadInterval: time.Second,
			ReadOnly: true}, "replica_reads"},
		"by latency": {redis.ClusterOptions{ClusterStateReloadInterval: time.Second,
			RouteByLatency: true}, "replica_reads"},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.Addrs, c.opts.ContextTimeoutEnabled = addrs, true
			client := redis.NewClusterClient(&c.opts)
			t.Cleanup(func() { _ = client.Close() })
			found, err := redisadapter.Preflight(t.Context(), client)
			must(t, err)
			masters := 0
			var of []string
			for _, f := range found {
				switch f.Code {
				case "no_maxmemory":
					masters++
				default:
					of = append(of, f.Code)
				}
			}
			assert.Equal(t, 3, masters, "%d masters have no maxmemory, want 3: %v", masters, found)
			var refused *redisadapter.RefusedError
			_, err = redisadapter.New(t.Context(), client, redisadapter.Options{
				Prefix: servertest.Prefix(t), AllowEviction: true,
				OnFinding: func(preflight.Finding) {},
			})
			assert.Equal(t, c.want == "replica_reads", errors.As(err, &refused), "New: %v", err)
			require.False(t, c.want == "" && len(of) > 0, "found %v, want %q", of, c.want)
			assert.False(t, c.want != "" && !slices.Equal(of, []string{c.want}),
				"found %v, want %q", of, c.want)
		})
	}
}

func TestPreflightOfEmbedded(t *testing.T) {
	mini, plain := redistest.Mini(t)
	client := redistest.Client(t, &redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true})
	found, err := redisadapter.Preflight(t.Context(), client)
	assert.NoError(t, err, "found %v", found)
	assert.Empty(t, found, "found %v, %v", found, err)
	found, err = redisadapter.Preflight(t.Context(), plain)
	assert.NoError(t, err)
	assert.Equal(t, []string{"context_timeout"}, codes(found), "a client that outwaits a deadline")
}

func TestPreflightUnreachable(t *testing.T) {
	addr := closedPort(t)
	client := redistest.Client(t, &redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1})
	_, err := redisadapter.Preflight(t.Context(), client)
	require.Error(t, err)
	assert.Contains(t, err.Error(), addr, "error %v", err)
	_, err = redisadapter.Preflight(t.Context(), nil)
	wantInput(t, err, "Client")
}

// TestPreflightOfServers tries real servers with bad configurations.
func TestPreflightOfServers(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisPair)
	primary := redistest.Client(t,
		&redis.Options{Addr: server.Addrs[0], ContextTimeoutEnabled: true})
	replica := redistest.Client(t,
		&redis.Options{Addr: server.Addrs[1], ContextTimeoutEnabled: true})
	want := func(client *redis.Client, want ...string) {
		t.Helper()
		found, err := redisadapter.Preflight(t.Context(), client)
		must(t, err)
		found = slices.DeleteFunc(found, func(f preflight.Finding) bool {
			return f.Code == "no_maxmemory"
		})
		assert.Equal(t, append([]string{}, want...), codes(found), "found %v", found)
	}
	want(primary)
	want(replica, "replica_role")
	_, err := redisadapter.New(t.Context(), replica, redisadapter.Options{})
	assert.Error(t, err, "New takes a replica")
	must(t, primary.ConfigSet(t.Context(), "appendonly", "no").Err())
	want(primary, "no_persistence_with_replicas")
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "volatile-random",
		"allkeys-lfu"} {
		must(t, primary.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		must(t, primary.ConfigSet(t.Context(), "maxmemory", "0").Err())
		want(primary, "no_persistence_with_replicas", "eviction_policy_unlimited")
		must(t, primary.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
		want(primary, "eviction_policy", "no_persistence_with_replicas")
	}
}
