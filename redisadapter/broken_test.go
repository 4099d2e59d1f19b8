package redisadapter_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
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

// TestBrokenConnectionIsNetwork: go-redis may return a system call's error that is not in a
// net.OpError. When it was classified as "other", the breaker took it for an answer of the server.
func TestBrokenConnectionIsNetwork(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNABORTED} {
		err := fmt.Errorf("claim: %w", os.NewSyscallError("write", errno))
		assert.Equal(t, "network", redisadapter.Classify(err), "%v", err)
	}
	assert.Equal(t, "other", redisadapter.Classify(syscall.EINVAL))
}

// TestServerAtMaxClients: the reply with which a full server refuses a new connection is often lost
// with the connection. Then it is a network error, which counts for the breaker, and never another
// answer. Once there is room the store continues.
func TestServerAtMaxClients(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindRedis)
	admin := redistest.Client(t, &redis.Options{Addr: server.Addr, PoolSize: 1, MinIdleConns: 1})
	require.NoError(t, admin.Ping(t.Context()).Err())
	few := redistest.Client(t, &redis.Options{Addr: server.Addr, PoolSize: 1, MaxRetries: -1})
	store := open(t, redistest.Backend{Client: few, Prefix: "ow"})

	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err())
	full := func(err error) bool {
		c := redisadapter.Classify(err)
		return c == "network" || c == "busy"
	}
	for n := range 5 {
		a := store.Claim(t.Context(), []driver.ClaimRequest{request(n)})[0]
		assert.Equal(t, dedup.Unknown, a.Outcome)
		assert.True(t, full(a.Err), "claim %d: %q is %s", n, a.Err, redisadapter.Classify(a.Err))
	}
	other := redistest.Client(t, &redis.Options{Addr: server.Addr, MaxRetries: -1})
	_, err := redisadapter.New(t.Context(), other, redisadapter.Options{Prefix: "ow"})
	assert.True(t, full(err), "New: %q is %s", err, redisadapter.Classify(err))

	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1000").Err())
	eventually(t, "a claim", func() bool {
		return store.Claim(t.Context(),
			[]driver.ClaimRequest{request(9)})[0].Outcome == dedup.Acquired
	})
}

// TestMissingPermissionHoldsNobody: without the right to record its end, Complete used to wait
// until the lease was over. It must return at once. The same claim can be completed when the right
// is back.
func TestMissingPermissionHoldsNobody(t *testing.T) {
	t.Parallel()
	admin := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	set := func(rules ...any) {
		t.Helper()
		require.NoError(t, admin.Do(t.Context(),
			append([]any{"ACL", "SETUSER", "worker", "on", "nopass", "~*", "+@all"},
				rules...)...).Err())
	}
	set()
	client := redistest.Client(t,
		&redis.Options{Addr: admin.Options().Addr, Username: "worker", Password: "x"})
	for _, layout := range layouts {
		for _, row := range []struct {
			name    string
			missing []any
		}{{"scripts", []any{"-eval", "-evalsha", "-set", "-sadd"}},
			{"inside scripts", []any{"-set", "-del", "-getdel", "-sadd", "-pexpireat"}}} {
			t.Run(fmt.Sprint(layout, "/", row.name), func(t *testing.T) {
				defer set()
				opts := layoutOptions("perm-"+layout.String(), layout)
				opts.BreakerAfter = -1
				store := openWith(t, redistest.Backend{Client: client}, opts)
				d, err := dedup.New(store, dedup.Config{
					Namespace: "perm", Window: time.Hour, LeaseTTL: time.Hour,
					SeenOnly: seenOnly(store),
				})
				require.NoError(t, err)
				claim, err := d.Claim(t.Context(), row.name)
				require.NoError(t, err)
				require.Equal(t, dedup.Acquired, claim.Outcome)

				set(row.missing...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err = claim.Complete(ctx, nil)
				require.Equal(t, "denied", redisadapter.Classify(err), "%v", err)
				assert.True(t, dedup.OutcomeUnknown(err),
					"an earlier part of it may have been executed")
				require.NoError(t, ctx.Err(), "it waited")

				set()
				assert.NoError(t, claim.Complete(t.Context(), nil))
				require.NoError(t, d.Close(t.Context()))
			})
		}
	}
}
