package redisadapter_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestConformanceOfTopologies runs the suite over the ways to reach a Redis that
// redistest.Backends leaves out.
func TestConformanceOfTopologies(t *testing.T) {
	clients := map[string]func(*testing.T) *redis.Client{
		"pair": func(t *testing.T) *redis.Client {
			primary, _ := servertest.RedisPrimary(t)
			return redistest.Client(t, &redis.Options{Addr: primary})
		},
		"sentinel": func(t *testing.T) *redis.Client {
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName:    "onceward",
				SentinelAddrs: servertest.Private(t, servertest.KindRedisSentinel).Addrs[2:],
			})
			t.Cleanup(func() { must(t, client.Close()) })
			return client
		},
		"tls": func(t *testing.T) *redis.Client { return overTLS(t, "default", "admin") },
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t)
			eachOf(t, topologyLayouts, func(t *testing.T, layout redisadapter.Layout) {
				b := redistest.Backend{Name: name, Client: c, Prefix: servertest.Prefix(t)}
				deduptest.Run(t, harness(t, b, layout))
			})
		})
	}
}

// overTLS starts a server that accepts only TLS, and connects to it.
func overTLS(t *testing.T, user, password string) *redis.Client {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedisTLS)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(server.File("ca.crt")),
		"the server's ca.crt holds no certificate")
	return redistest.Client(t, &redis.Options{
		Addr: server.Addr, Username: user, Password: password,
		TLSConfig: &tls.Config{RootCAs: roots},
	})
}
