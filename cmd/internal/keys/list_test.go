package keys

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// crowd has n keys of claims in flight, and others foreign keys.
func crowd(t *testing.T, n, others int) (r *rig, addr string, client *redis.Client) {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	client = redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute})
	if others > 0 {
		require.NoError(t, client.Do(t.Context(), "DEBUG", "POPULATE", others, "cache",
			8).Err())
	}
	r = onRedis(t, client, redisadapter.Full, "--redis", "redis://"+server.Addr)
	reqs := make([]driver.ClaimRequest, n)
	for i := range reqs {
		id, _ := driver.NewID("shop", "", fmt.Sprint(i))
		reqs[i] = driver.ClaimRequest{ID: id, Token: driver.Token{1}, Lease: time.Minute,
			Hold: time.Minute}
	}
	r.store.Claim(t.Context(), reqs)
	return r, server.Addr, client
}

func parse(t *testing.T, out string) (l List) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &l), out)
	return l
}

// A Redis is full of foreign keys: all of ours are found, and the output says that these are all.
func TestListAmongOthers(t *testing.T) {
	r, _, client := crowd(t, 3, 300_000)
	size, err := client.DBSize(t.Context()).Result()
	require.NoError(t, err)
	l := parse(t, r.wants(cli.Done, "inflight --json --for 0"))
	require.Len(t, l.Keys, 4,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.True(t, l.Complete,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.False(t, l.More, "%d keys, complete %t, more %t, looked at %v of %v, and there are %d",
		len(l.Keys), l.Complete, l.More, l.Looked, l.Total, size)
	require.NotNil(t, l.Total,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.Equal(t, size, *l.Total,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	require.NotNil(t, l.Looked,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.GreaterOrEqual(t, *l.Looked, size*8/10,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.LessOrEqual(t, *l.Looked, size,
		"%d keys, complete %t, more %t, looked at %v of %v, and there are %d", len(l.Keys),
		l.Complete, l.More, l.Looked, l.Total, size)
	assert.NotContains(t, r.wants(cli.Done, "inflight --for 0", "4 in flight\n"), "COMPLETE")
	l = parse(t, r.wants(cli.Done, "inflight --json --limit 2 --for 0"))
	require.Len(t, l.Keys, 2, "cut by --limit: %d keys, complete %t, more %t", len(l.Keys),
		l.Complete, l.More)
	assert.False(t, l.Complete, "cut by --limit: %d keys, complete %t, more %t", len(l.Keys),
		l.Complete, l.More)
	assert.True(t, l.More, "cut by --limit: %d keys, complete %t, more %t", len(l.Keys),
		l.Complete, l.More)
}

// A list is interrupted, or its server fails. The keys found so far are shown, and the output says
// that there may be more.
func TestListEndsEarly(t *testing.T) {
	for _, test := range []struct {
		name string
		code int
		rule redisproxy.Rule
		says string
	}{
		{"interrupted", cli.Interrupted,
			redisproxy.Rule{Action: redisproxy.DelayReply, Delay: time.Hour}, "interrupted"},
		{"fails", cli.Usage, redisproxy.Rule{Action: redisproxy.DropRequest}, "list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, addr, _ := crowd(t, 250, 0)
			proxy := redisproxy.Start(t, addr)
			r.flags[1] = "redis://" + proxy.Addr()
			for _, form := range []string{"--json=false", "--json"} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				rule := test.rule // a page of a hundred takes one SCAN or two
				rule.Command, rule.Skip = "SCAN", 2
				if test.code == cli.Interrupted {
					rule.OnFire = func(redisproxy.Request) { cancel() }
				}
				proxy.SetRules(rule)
				var out, errOut bytes.Buffer
				code := execute(ctx, "inflight", append([]string{"--limit", "1000", form},
					r.flags...),
					strings.NewReader(""), &out, &errOut)
				assert.Equal(t, test.code, code)
				assert.Contains(t, errOut.String(), test.says)
				if form == "--json" {
					l := parse(t, out.String())
					assert.False(t, l.Complete,
						"%d keys, complete %t, more %t, looked at %d of %d", len(l.Keys),
						l.Complete, l.More, *l.Looked, *l.Total)
					assert.False(t, l.More, "%d keys, complete %t, more %t, looked at %d of %d",
						len(l.Keys), l.Complete, l.More, *l.Looked, *l.Total)
					assert.GreaterOrEqual(t, len(l.Keys), 90,
						"%d keys, complete %t, more %t, looked at %d of %d", len(l.Keys),
						l.Complete, l.More, *l.Looked, *l.Total)
					assert.LessOrEqual(t, len(l.Keys), 240,
						"%d keys, complete %t, more %t, looked at %d of %d", len(l.Keys),
						l.Complete, l.More, *l.Looked, *l.Total)
					assert.False(t, *l.Looked < 90,
						"%d keys, complete %t, more %t, looked at %d of %d", len(l.Keys),
						l.Complete, l.More, *l.Looked, *l.Total)
					assert.Less(t, *l.Looked, *l.Total,
						"%d keys, complete %t, more %t, looked at %d of %d", len(l.Keys),
						l.Complete, l.More, *l.Looked, *l.Total)
				} else {
					assert.Contains(t, out.String(),
						"in flight so far, and THE LIST IS NOT COMPLETE: looked at ")
					assert.Contains(t, out.String(), " of about 25")
				}
			}
		})
	}
}
