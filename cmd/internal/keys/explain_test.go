package keys

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// explained returns the output of --json.
func (r *rig) explained(code int, args string) (e Explanation) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal([]byte(r.wants(code, "explain --json "+args)), &e))
	return e
}

// Each state has a reason, an advice and a page.
func TestExplain(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t)
			for key, says := range map[string]string{"done": "under this key it ran once",
				"flying": "An attempt holds the key", "doubtful": "point of no return"} {
				e := r.explained(cli.Done, key+" --namespace shop")
				assert.Contains(t, strings.Join(e.Why, " "), says)
				assert.NotEmpty(t, e.Do)
				assert.True(t, strings.HasPrefix(e.Page, pages), e.Page)
				require.Len(t, e.Servers, 1)
			}
			e := r.explained(cli.No, "never --namespace shop")
			assert.Equal(t, "absent", e.State)
			assert.Contains(t, strings.Join(e.Why, " "), "No record has this name")
			require.NotEmpty(t, e.Looked)
			assert.Contains(t, strings.Join(e.NotKnown, " "), "have a scope")
			r.wants(cli.Done, "explain doubtful --namespace shop", "Why\n", "What to do\n",
				"onceward resolve --id "+e.idOf(t, "doubtful")+" --released",
				"runbooks/uncertain.md")
			r.wants(cli.No, "explain never --namespace shop", "Not known\n", "Looked at\n",
				"the key itself")
		})
	}
}

func (*Explanation) idOf(t *testing.T, key string) string {
	t.Helper()
	o := Options{typed: key}
	o.Namespace, o.Key = "shop", key
	require.NoError(t, o.derive())
	v := (&store{}).view(o.ID, &dedup.Record{}, time.Now())
	return v.ID
}

// The reason depends on state and attempt.
func TestReason(t *testing.T) {
	minute := int64(60_000)
	for name, test := range map[string]struct {
		record dedup.Record
		view   View
		server Server
		says   string
		page   string
	}{
		"second attempt": {dedup.Record{State: driver.StateSucceeded, Attempt: 2}, View{}, Server{},
			"more than once", "guides/operating.md"},
		"lapsed": {dedup.Record{State: driver.StateInProgress, Attempt: 1, Remaining: -time.Minute},
			View{}, Server{}, "as attempt 2", "runbooks/lease-lost.md"},
		"released": {dedup.Record{State: driver.StateReleased, Attempt: 1}, View{}, Server{},
			"runs again with its next delivery, as attempt 2", "guides/operating.md"},
		"failed": {dedup.Record{State: driver.StateFailed, Result: []byte("no")}, View{}, Server{},
			"does not run again", "guides/operating.md"},
		"parked": {dedup.Record{State: driver.StateFailed, Result: []byte("parked: no")}, View{},
			Server{}, "was parked", "guides/operating.md"},
		"mark": {dedup.Record{State: driver.StateSucceeded}, View{mark: true}, Server{},
			"one transaction", "guides/operating.md"},
		"member": {dedup.Record{State: driver.StateSucceeded}, View{member: true}, Server{},
			"keeps no more", "guides/operating.md"},
		"restart": {dedup.Record{State: driver.StateInProgress, Remaining: -1},
			View{ClaimedMS: &minute}, Server{StartedMS: new(int64)}, "started after the claim", ""},
		"evicted": {dedup.Record{}, View{}, Server{Evicted: 7}, "evicted 7 keys",
			"runbooks/evictions.md"},
		"promoted": {dedup.Record{}, View{}, Server{Promoted: true}, "another master",
			"runbooks/amnesia.md"},
	} {
		e := Explanation{View: test.view, Servers: []Server{test.server}}
		e.reason(&test.record, &Options{})
		assert.Contains(t, strings.Join(e.Why, " "), test.says, name)
		assert.Contains(t, e.Page, test.page, name)
		assert.NotEmpty(t, e.Do, name)
	}
}

// The commands to copy use the same store, and show no password.
func TestWhere(t *testing.T) {
	for want, l := range map[string]Location{
		" --redis 127.0.0.1:6379": {Server: server.Options{Redis: "127.0.0.1:6379"}},
		" --cluster --redis redis://h:1/2 --prefix p": {Prefix: "p",
			Server: server.Options{Redis: "redis://h:1/2", Cluster: true}},
		" --redis URL --secret-env S": {secretEnv: "S",
			Server: server.Options{Redis: "redis://u:hunter22@h:1"}},
		" --sql env:DB --schema s": {Schema: "s", Server: server.Options{SQL: "env:DB"}},
		" --sql DSN --table t":     {Table: "t", Server: server.Options{SQL: "u:p@tcp(h)/d"}},
		" --sql sqlite:/claims.db": {Server: server.Options{SQL: "sqlite:/claims.db"}},
	} {
		assert.Equal(t, want, (&Options{Location: l}).where())
	}
}

func TestRedisServer(t *testing.T) {
	info := redis.NewInfoCmd(t.Context())
	info.SetVal(map[string]map[string]string{
		"Server":      {"redis_version": "7.0.15", "uptime_in_seconds": "60"},
		"Stats":       {"evicted_keys": "3"},
		"Replication": {"role": "master", "master_replid2": "0000000000"},
	})
	s := redisServer("redis", info)
	assert.Equal(t, "redis 7.0.15, started 1m0s ago", s.String())
	assert.EqualValues(t, 3, s.Evicted)
	assert.False(t, s.Promoted)
	info.SetVal(map[string]map[string]string{
		"Replication": {"role": "slave", "master_replid2": "00ab"}})
	s = redisServer("redis", info)
	assert.True(t, s.Promoted)
	assert.Contains(t, s.String(), "A REPLICA")
}

func TestExplainDatabases(t *testing.T) {
	for name, on := range map[string]func(*testing.T) *rig{
		"postgres": func(t *testing.T) *rig {
			dsn := servertest.Postgres(t)
			return onSQL(t, sqladapter.Postgres, "pgx", dsn, dsn)
		},
		"mariadb": func(t *testing.T) *rig {
			dsn := servertest.MariaDB(t)
			return onSQL(t, sqladapter.MySQL, "mysql", dsn, dsn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := on(t).explained(cli.Done, "doubtful --namespace shop")
			require.Len(t, e.Servers, 1)
			assert.Empty(t, e.NotKnown)
			require.NotNil(t, e.Servers[0].StartedMS)
			assert.Positive(t, *e.Servers[0].StartedMS)
		})
	}
}

// The store has only a digest of group and topic. The brokers know the names.
func TestExplainNamesTheSource(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders", "payments"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	var offsets kadm.Offsets
	offsets.AddOffset("orders", 1, 78, -1)
	_, err = kadm.NewClient(client).CommitOffsets(t.Context(), "billing", offsets)
	require.NoError(t, err)

	addr := servertest.Redis(t)
	r := onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Full, "--redis",
		"redis://"+addr)
	d, err := dedup.New(r.store, dedup.Config{Namespace: "shop", Window: testWindow,
		LeaseTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	_, err = d.Claim(t.Context(), "m7", dedup.WithScope("billing/orders"), func(r *dedup.Request) {
		r.Origin = driver.Origin{Source: "billing/orders", Partition: 1, Offset: 77, Generation: 5}
	})
	require.NoError(t, err)
	brokers := " --brokers " + strings.Join(cluster.ListenAddrs(), ",")
	const owner = "group billing, topic orders, partition 1, offset 77, generation 5"
	for _, args := range []string{"orders/1/77 --group billing --topic orders" + brokers,
		"orders/1/77" + brokers, "m7 --namespace shop --group billing --topic orders"} {
		r.wants(cli.Done, "explain "+args, owner)
	}
	r.wants(cli.Done, "explain orders/1/77"+brokers, "has committed offset 78",
		"it is not delivered again", "found by     the position of its message")
	r.wants(cli.No, "inspect orders/1/78", "no record of")
	e := r.explained(cli.Done, "m7 --namespace shop --group billing --topic orders --brokers 127.0.0.1:1")
	assert.Contains(t, strings.Join(e.NotKnown, " "), "127.0.0.1:1")
}

// A line of a log is enough to find the key whose ID is in it.
func TestLineOfALog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "claims.db")
	r := onSQL(t, sqladapter.SQLite, "sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)", "sqlite:"+file)
	id := (*Explanation)(nil).idOf(t, "doubtful")
	for _, line := range []string{
		`time=2026-03-01T03:12:44Z level=WARN msg="httpadapter: uncertain" key_id=` + id,
		`{"type":"about:blank","instance":"urn:onceward:` + id + `"}`, "urn:onceward:" + id, id[:9],
	} {
		code, out, errOut := r.run(nil, "inspect", line)
		assert.Equal(t, cli.Done, code, errOut)
		assert.Contains(t, out, "uncertain")
	}
	code, _, errOut := r.run(nil, "inspect", "key_id=00112233445566778899aabbccddeeff x")
	assert.Equal(t, cli.No, code)
	assert.Contains(t, errOut, "the ID in the text  00112233445566778899aabbccddeeff")
}
