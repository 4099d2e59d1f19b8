package keys

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const (
	testWindow = 24 * time.Hour
	testSecret = "0123456789abcdef"
)

// rig is a store with some keys: done, flying and doubtful, of namespace shop.
type rig struct {
	t     *testing.T
	flags []string
	store dedup.Store
}

// onRedis is a rig in Redis.
func onRedis(t *testing.T, client redis.UniversalClient, layout redisadapter.Layout,
	flags ...string) *rig {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	opts := redisadapter.Options{Prefix: servertest.Prefix(t), Layout: layout,
		OnFinding: func(preflight.Finding) {}}
	flags = append(flags, "--prefix", opts.Prefix)
	if layout == redisadapter.Compact {
		t.Setenv("SECRET", testSecret)
		opts.Secret, opts.Window, opts.ExpectedKeys = []byte(testSecret), testWindow, 1000
		flags = append(flags, "--secret-env", "SECRET")
	}
	store, err := redisadapter.New(t.Context(), client, opts)
	require.NoError(t, err)
	return newRig(t, store, flags)
}

// onSQL is a rig in a database.
func onSQL(t *testing.T, dialect sqladapter.Dialect, driver, dsn, flag string) *rig {
	t.Helper()
	var db *sql.DB
	var err error
	if dialect == sqladapter.SQLite {
		db, err = sqladapter.OpenSQLite(driver, dsn)
	} else {
		db, err = sql.Open(driver, dsn)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	table := servertest.Prefix(t)
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: dialect, Table: table})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	t.Cleanup(func() { _ = store.Drop(context.Background()) })
	return newRig(t, store, []string{"--sql", flag, "--table", table})
}

func newRig(t *testing.T, store dedup.Store, flags []string) *rig {
	t.Helper()
	r := &rig{t: t, flags: flags, store: store}
	layout, ok := store.(*redisadapter.Store)
	small := ok && layout.Limits().NoResults
	d, err := dedup.New(store, dedup.Config{Namespace: "shop", Window: testWindow,
		LeaseTTL: time.Minute, Labels: true, SeenOnly: small})
	require.NoError(t, err)
	done, err := d.Claim(t.Context(), "done")
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, done.Outcome)
	var result []byte
	if !small {
		result = []byte("a\tresult" + strings.Repeat("!", 300))
	}
	require.NoError(t, done.Complete(t.Context(), result))
	flying, err := d.Claim(t.Context(), "flying",
		func(r *dedup.Request) {
			r.Origin = driver.Origin{Source: "orders", Partition: 3, Offset: 77, Generation: 5}
		},
		func(r *dedup.Request) { r.Label = "order 7" })
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, flying.Outcome)
	r.doubt("doubtful")
	return r
}

// doubt leaves a key uncertain: its owner has declared danger, and its lease lapses.
func (r *rig) doubt(key string) {
	r.t.Helper()
	const short = 50 * time.Millisecond
	id, _ := driver.NewID("shop", "", key)
	req := driver.ClaimRequest{ID: id, Token: driver.Token{7}, Lease: 10 * time.Second,
		Hold: time.Hour}
	a := r.store.Claim(r.t.Context(), []driver.ClaimRequest{req})[0]
	require.Equal(r.t, dedup.Acquired, a.Outcome)
	c := driver.Renewal{ID: id, Token: req.Token, Fence: a.Record.Fence, Lease: short,
		Hold: time.Hour, Window: testWindow, Irreversible: true}
	require.True(r.t, r.store.Renew(r.t.Context(), []driver.Renewal{c})[0].Held)
	for r.stateOf(key) != driver.StateUncertain {
		require.NoError(r.t, r.t.Context().Err(), "the key does not become uncertain")
	}
}

func (r *rig) stateOf(key string) driver.State {
	r.t.Helper()
	id, _ := driver.NewID("shop", "", key)
	a := r.store.Lookup(r.t.Context(), []driver.ID{id})[0]
	require.NoError(r.t, a.Err)
	return a.Record.State
}

// run runs a command with the rig's flags.
func (r *rig) run(in io.Reader, args ...string) (code int, out, errOut string) {
	r.t.Helper()
	var o, e bytes.Buffer
	code = execute(r.t.Context(), args[0], append(args[1:], r.flags...), in, &o, &e)
	return code, o.String(), e.String()
}

// wants runs a command, and checks its exit code and that its output contains parts.
func (r *rig) wants(code int, args string, parts ...string) string {
	r.t.Helper()
	got, out, errOut := r.run(strings.NewReader(""), strings.Fields(args)...)
	for _, part := range parts {
		assert.Contains(r.t, out+errOut, part, "%s: no %q in\n%s%s", args, part, out, errOut)
	}
	assert.Equal(r.t, code, got, "%v: %v: %v", args, out, errOut)
	return out
}

// all runs the commands that work on every store.
func (r *rig) all() {
	r.t.Helper()
	r.wants(cli.Done, "inspect flying --namespace shop", "in_progress",
		"partition 3, offset 77, generation 5", "left", "first seen", `"order 7"`)
	r.wants(cli.Done, "inspect doubtful --namespace shop", "uncertain", "irreversible")
	r.wants(cli.No, "inspect never --namespace shop", "absent", "no record of",
		"its namespace, scope, prefix or table is another")
	r.wants(cli.No, "resolve never --namespace shop --released --yes", "no record of")
	r.wants(cli.No, "inspect done --namespace shop --scope eu", `"done" of namespace shop, scope eu`)
	r.wants(cli.Done, "inflight", "1 in flight", "partition 3", "order 7")
	r.wants(cli.Done, "inflight --older 1h", "0 in flight")
	r.wants(cli.Done, "uncertain", "1 uncertain")
	var l List
	out := r.wants(cli.Done, "uncertain --json --older 1ms")
	id, _ := driver.NewID("shop", "", "doubtful")
	require.NoError(r.t, json.Unmarshal([]byte(out), &l), out)
	require.Len(r.t, l.Keys, 1)
	assert.Equal(r.t, hex.EncodeToString(id[:]), l.Keys[0].ID)
	assert.False(r.t, l.More)
	assert.WithinRange(r.t, time.Now().Add(-time.Duration(*l.Keys[0].ClaimedMS)*time.Millisecond),
		time.Now().Add(-time.Minute), time.Now().Add(-10*time.Millisecond))
	r.settle(l.Keys[0].ID)
}

// settle resolves keys, and forgets them.
func (r *rig) settle(doubtful string) {
	r.t.Helper()
	r.wants(cli.No, "resolve flying --namespace shop --done --window 24h --yes", "not uncertain")
	r.wants(cli.No, "resolve --id "+doubtful+" --done --window 24h", "Has its effect happened?",
		"not confirmed")
	s := r.stateOf("doubtful")
	require.Equal(r.t, driver.StateUncertain, s, "without a yes it has become %v", s)
	r.wants(cli.Done, "resolve --id "+doubtful+" --done --window 24h --yes",
		"was uncertain, is succeeded")
	s = r.stateOf("doubtful")
	assert.Equal(r.t, driver.StateSucceeded, s, "resolved as done it is %v", s)
	r.doubt("second")
	r.wants(cli.Done, "resolve second --namespace shop --released --yes", "was uncertain, is released")
	s = r.stateOf("second")
	assert.Equal(r.t, driver.StateReleased, s, "resolved as released it is %v", s)
	r.wants(cli.No, "forget flying --namespace shop --yes", "in flight")
	r.wants(cli.No, "forget never --namespace shop --yes", "no record of")
	r.wants(cli.No, "forget done --namespace shop", "Forget it", "not confirmed")
	code, out, errOut := r.run(strings.NewReader("y\n"), "forget", "done", "--namespace",
		"shop")
	assert.Equal(r.t, cli.Done, code, "a yes is not heard: %d, %s%s", code, out, errOut)
	s = r.stateOf("done")
	assert.Equal(r.t, driver.StateAbsent, s, "forgotten it is %v", s)
}

func TestRedisLayouts(t *testing.T) {
	addr := servertest.Redis(t)
	for layout, parts := range map[redisadapter.Layout][]string{
		redisadapter.Full: {"redis full", "attempt", `308 bytes: "a\tresult!!!`,
			`!"...`, "ago"},
		redisadapter.Compact: {"redis compact", "attempt      not kept (compact)",
			"done         not kept (compact)", "result       not kept (compact)", "kept for"},
	} {
		t.Run(layout.String(), func(t *testing.T) {
			r := onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), layout, "--redis",
				"redis://"+addr)
			r.wants(cli.Done, "inspect done --namespace shop --result", append(parts, "succeeded")...)
			out := r.wants(cli.Done, "inspect done --namespace shop")
			assert.NotContains(t, out, "!!!", "a result is shown that nobody has asked for:\n%s",
				out)
			r.all()
		})
	}
}

func TestRedisCluster(t *testing.T) {
	addrs := servertest.RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	r := onRedis(t, client, redisadapter.Full, "--redis", "redis://"+addrs[0], "--cluster")
	r.all()
	single := *r
	single.flags = append([]string{"--redis", "redis://" + addrs[0]}, r.flags[3:]...)
	single.wants(cli.Usage, "inflight", "add --cluster")
	// The layout key of a missing prefix may belong to this node, which rightly does not have it.
	for _, addr := range addrs {
		single.flags = []string{"--redis", "redis://" + addr, "--prefix", servertest.Prefix(t)}
		single.wants(cli.Usage, "inflight", "add --cluster")
	}
}

func TestRedisSentinel(t *testing.T) {
	s := servertest.Private(t, servertest.KindRedisSentinel)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "onceward",
		SentinelAddrs: s.Addrs[2:]})
	onRedis(t, client, redisadapter.Full,
		"--redis", "redis://"+s.Addrs[2]+"?master_name=onceward&addr="+s.Addrs[3]).all()
}

func TestPostgres(t *testing.T) {
	dsn := servertest.Postgres(t)
	onSQL(t, sqladapter.Postgres, "pgx", dsn, dsn).all()
}

func TestMariaDB(t *testing.T) {
	dsn := servertest.MariaDB(t)
	onSQL(t, sqladapter.MySQL, "mysql", dsn, dsn).all()
}

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "claims.db")
	onSQL(t, sqladapter.SQLite, "sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)", "sqlite:"+file).all()
}

// No command makes a layout: that of a mistyped prefix would block the right one later.
func TestNothingIsMade(t *testing.T) {
	addr := servertest.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	prefix := servertest.Prefix(t)
	r := &rig{t: t, flags: []string{"--redis", "redis://" + addr, "--prefix", prefix}}
	r.wants(cli.Usage, "inspect k --namespace shop", "nobody has kept records under")
	r.wants(cli.Usage, "inflight", "nobody has kept records under")
	names, err := client.Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	assert.Empty(t, names)
}

// With another secret no existing key would be found.
func TestOtherSecret(t *testing.T) {
	addr := servertest.Redis(t)
	r := onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Compact, "--redis",
		"redis://"+addr)
	t.Setenv("SECRET", "fedcba9876543210")
	r.wants(cli.Usage, "inspect done --namespace shop", "secret is")
	r.flags = r.flags[:4]
	r.wants(cli.Usage, "inspect done --namespace shop", "--secret-env is missing")
	r.wants(cli.Usage, "resolve done --done --namespace shop", "--secret-env is missing")
}

// If a table does not exist, its name is usually wrong. A command that looks at a key migrates
// nothing.
func TestNoTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := &rig{t: t, flags: []string{"--sql", "sqlite:" + file}}
	r.wants(cli.Usage, "inspect k --namespace shop", "onceward_claims", "--table",
		"onceward migrate --kind store")
	r = &rig{t: t, flags: []string{"--sql", "postgres://u@127.0.0.1:1/db"}}
	_, _, text := r.run(nil, "inspect", "k", "--namespace", "shop")
	assert.Contains(t, text, "read the version of table onceward_claims",
		"who looks at a key reads")
	assert.NotContains(t, text, "migrate", "who looks at a key reads")
}

// Marks are found in whatever form they are kept, without a flag for the form.
func TestMarks(t *testing.T) {
	const uuid, ulid = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for name, row := range map[string]struct {
		key, other string
		edit       func(*sqladapter.Config)
	}{
		"digest": {"done", "other", func(*sqladapter.Config) {}},
		"uuidv7": {uuid, "017f22e2-79b0-7cc3-98c4-dc0c0c073980",
			func(c *sqladapter.Config) { c.IDTime = sqladapter.UUIDv7 }},
		"ulid": {ulid, "01ARZ3NDEKTSV4RRFFQ69G5FAW",
			func(c *sqladapter.Config) { c.IDTime = sqladapter.ULID }},
		"snowflake": {"175928847299117063", "175928847299117064", func(c *sqladapter.Config) {
			c.IDTime, c.SnowflakeEpoch = sqladapter.Snowflake, time.UnixMilli(1_420_070_400_123)
		}},
		"generations": {"done", "other", func(c *sqladapter.Config) {
			c.Retention, c.Window = sqladapter.Generations, time.Hour
		}},
	} {
		t.Run(name+"/postgres", func(t *testing.T) {
			lookAtMarks(t, sqladapter.Postgres, servertest.Postgres(t), row.key, row.other,
				row.edit)
		})
		t.Run(name+"/mysql", func(t *testing.T) {
			lookAtMarks(t, sqladapter.MySQL, servertest.MariaDB(t), row.key, row.other, row.edit)
		})
	}
}

func lookAtMarks(t *testing.T, d sqladapter.Dialect, dsn, key, other string,
	edit func(*sqladapter.Config)) {
	t.Helper()
	db, err := sql.Open(map[sqladapter.Dialect]string{sqladapter.Postgres: "pgx",
		sqladapter.MySQL: "mysql"}[d], dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	cfg := sqladapter.Config{Dialect: d, Namespace: "shop", Table: servertest.Prefix(t)}
	edit(&cfg)
	marks, err := sqladapter.New(cfg)
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(t.Context(), db))
	t.Cleanup(func() { _ = marks.Migrations().To(context.Background(), db, 0) })
	_, err = marks.Do(t.Context(), db, key, func(ctx context.Context, tx *sql.Tx) error {
		return marks.SaveResultTx(ctx, tx, key, []byte("receipt"))
	})
	require.NoError(t, err)
	r := &rig{t: t, flags: []string{"--sql", dsn, "--table", cfg.Table, "--marks"}}
	r.wants(cli.Done, "inspect "+key+" --namespace shop --result", d.String()+" marks",
		"succeeded", `"receipt"`, "not kept (mark)")
	r.wants(cli.No, "inspect "+other+" --namespace shop", "absent")
	if cfg.IDTime != 0 {
		r.wants(cli.Usage, "inspect done --namespace shop", "KEY is not a "+cfg.IDTime.String())
	}
}

// A server may not answer, or not exist. Neither error shows a password.
func TestUnreachable(t *testing.T) {
	r := &rig{t: t, flags: []string{"--redis", "redis://u:hunter22@127.0.0.1:1"}}
	assert.NotContains(t, r.wants(cli.Usage, "inspect k --namespace shop", "--redis: "),
		"hunter22")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	assert.Equal(t, cli.Interrupted, execute(ctx, "inflight", r.flags, strings.NewReader(""),
		&out, &errOut), errOut.String())
}

// A server accepts the connection and hangs. The command says which server has not answered, and
// Ctrl-C ends it at once.
func TestServerHangs(t *testing.T) {
	for _, flags := range []string{"", "--cluster"} {
		for _, args := range []string{"inspect k --namespace shop", "uncertain",
			"forget k --namespace shop --yes"} {
			url, asked := hangs(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			words := append(strings.Fields(args), append(strings.Fields(flags), "--redis", url)...)
			var errOut bytes.Buffer
			began := time.Now()
			code := execute(ctx, words[0], words[1:], strings.NewReader(""), io.Discard, &errOut)
			// go-redis alone would wait for three to five seconds
			took := time.Since(began)
			assert.Equal(t, cli.Interrupted, code, "%v: %v: %v", args, flags, errOut.String())
			assert.LessOrEqual(t, took, 2*time.Second, "%v: %v: %v", args, flags, errOut.String())
		}
	}
	url, _ := hangs(t)
	r := &rig{t: t, flags: []string{"--redis", url + "?read_timeout=100ms&max_retries=-1"}}
	r.wants(cli.Usage, "uncertain", "no answer in time from "+strings.TrimPrefix(url, "redis://"))
}

// hangs is a server that reads and never answers. asked is closed at its first read.
func hangs(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	first := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = c.Close() }()
				for b := make([]byte, 4096); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
					once.Do(func() { close(first) })
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "redis://" + l.Addr().String(), first
}

// Nobody answers the question. The command still ends with its context.
func TestInterruptedQuestion(t *testing.T) {
	addr := servertest.Redis(t)
	r := onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Full, "--redis",
		"redis://"+addr)
	ctx, cancel := context.WithCancel(t.Context())
	terminal, typed := io.Pipe()
	t.Cleanup(func() { _ = typed.Close() })
	var errOut bytes.Buffer
	shown := &waiting{cancel: cancel}
	assert.Equal(t, cli.Interrupted,
		execute(ctx, "forget", append([]string{"done", "--namespace", "shop"}, r.flags...),
			terminal, shown, &errOut), errOut.String())
	assert.Equal(t, driver.StateSucceeded, r.stateOf("done"))
}

// waiting is an output that cancels the command when the question is written.
type waiting struct{ cancel func() }

func (w *waiting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "[y/N]") {
		w.cancel()
	}
	return len(b), nil
}

// If there are more keys than the limit, the oldest found are shown, and that there are more.
func TestLimit(t *testing.T) {
	addr := servertest.Redis(t)
	r := onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Full, "--redis",
		"redis://"+addr)
	reqs := make([]driver.ClaimRequest, 250)
	for i := range reqs {
		id, _ := driver.NewID("shop", "", fmt.Sprint(i))
		reqs[i] = driver.ClaimRequest{ID: id, Token: driver.Token{1}, Lease: time.Minute,
			Hold: time.Minute}
	}
	r.store.Claim(t.Context(), reqs)
	r.wants(cli.Done, "inflight", "100 in flight, and there are more: raise --limit")
	r.wants(cli.Done, "inflight --limit 1000", "251 in flight")
}
