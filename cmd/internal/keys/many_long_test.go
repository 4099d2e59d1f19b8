//go:build long

package keys

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// fill writes n copies of a record under names of keys, in the server.
const fill = `
local value, first, n = redis.call('GET', KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for i = first, first + n - 1 do
  redis.call('SET', ARGV[1] .. ':{' .. string.format('%021d', i) .. 'A}', value, 'PX', 86400000)
end
return n`

// TestTenMillion: ten million keys are done. Lists and counts of uncertain keys, and of attempts
// past their point of no return, are still exact and fast. Those of other attempts are a sample
// that says how much it has seen. ONCEWARD_KEYS sets another number of keys.
func TestTenMillion(t *testing.T) {
	const step, irreversible, flying = 50_000, 700, 300
	all := 10_000_000
	if fewer, err := strconv.Atoi(os.Getenv("ONCEWARD_KEYS")); err == nil {
		all = fewer
	}
	server := servertest.Private(t, servertest.KindRedis)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute})
	r := onRedis(t, client, redisadapter.Full, "--redis", "redis://"+server.Addr)
	prefix := r.flags[len(r.flags)-1]
	id, err := driver.NewID("shop", "", "done")
	require.NoError(t, err)
	done := []string{prefix + ":{" + base64.RawURLEncoding.EncodeToString(id[:]) + "}"}
	began := time.Now()
	for first := 0; first < all; first += step {
		require.NoError(t, client.Eval(t.Context(), fill, done, prefix, first, step).Err())
	}
	t.Logf("%d keys are there after %v", client.DBSize(t.Context()).Val(), time.Since(began))

	for i := range irreversible + flying {
		id, rec := r.claim(fmt.Sprint("k", i), driver.Token{9})
		if i >= irreversible {
			continue
		}
		c := driver.Renewal{ID: id, Token: driver.Token{9}, Fence: rec.Fence, Lease: time.Hour,
			Hold: time.Hour, Window: testWindow, Irreversible: true}
		if i%7 != 0 { // uncertain; the others still run
			c.Lease = time.Millisecond
		}
		require.True(t, r.store.Renew(t.Context(), []driver.Renewal{c})[0].Held)
	}
	running := (irreversible + 6) / 7
	timed := func(args string) List {
		began := time.Now()
		out := r.wants(cli.Done, args)
		t.Logf("%-40s %v", args, time.Since(began).Round(time.Millisecond))
		return parse(t, out)
	}
	l := timed("uncertain --json")
	assert.Equal(t, irreversible-running+1, l.Exact) // and one of the rig
	assert.Len(t, l.Keys, 100)
	l = timed("uncertain --json --limit 10000")
	assert.Len(t, l.Keys, irreversible-running+1)
	assert.True(t, l.Complete)
	l = timed("inflight --json --limit 10000")
	assert.Equal(t, running, l.Exact)
	assert.GreaterOrEqual(t, len(l.Keys), running)
	require.NotNil(t, l.Looked)
	t.Logf("seen %d of %d keys; %d in flight, of them %d past their point of no return", *l.Looked,
		*l.Total, len(l.Keys), l.Exact)
	timed("resolve --all --released --dry-run --json --limit 10000")
}
