package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// run runs the command and reads its report.
func run(t *testing.T, args ...string) (r Report) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := execute(t.Context(), append(args, "--json", "--yes"), nil, &out, &errOut)
	require.Equal(t, cli.Done, code, "%v: %s", args, errOut.String())
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	assert.Contains(t, errOut.String(), "this loads the server")
	return r
}

// measured runs the command for a moment, with duplicates.
func measured(t *testing.T, args ...string) {
	t.Helper()
	r := run(t, append(args, "--for", "400ms", "--dup", "20%", "--workers", "4")...)
	assert.Positive(t, r.New)
	assert.Positive(t, r.Dups)
	assert.Zero(t, r.Failures, "%v", r.Errors)
	assert.Equal(t, "time", r.EndedBy)
	assert.InEpsilon(t, float64(r.New+r.Dups)/r.Seconds, r.PerSec, 0.01)
	assert.LessOrEqual(t, r.P50MS, r.P99MS)
	assert.LessOrEqual(t, r.P99MS, r.P999MS)
	assert.LessOrEqual(t, r.P999MS, r.MaxMS)
	assert.Positive(t, r.MaxMS)
}

func TestRedis(t *testing.T) {
	addr := servertest.Redis(t)
	for _, layout := range []string{"full", "compact"} {
		measured(t, "--redis", "redis://"+addr, "--layout", layout)
	}
}

func TestCluster(t *testing.T) {
	nodes := servertest.RedisCluster(t)
	measured(t, "--redis", "redis://"+nodes[0], "--cluster")
	var out, errOut bytes.Buffer
	code := execute(t.Context(), []string{"--redis", "redis://" + nodes[0]}, nil, &out, &errOut)
	assert.Equal(t, cli.Usage, code)
	assert.Contains(t, errOut.String(), "add --cluster")
}

// No run leaves a table in a database.
func TestSQL(t *testing.T) {
	measured(t, "--sql", servertest.MariaDB(t))
	dsn := servertest.Postgres(t)
	measured(t, "--sql", dsn)
	o, err := parse("--sql", dsn, "--for", "100ms")
	require.NoError(t, err)
	s, err := newSQL(&o, servertest.Prefix(t))
	require.NoError(t, err)
	t.Cleanup(s.close)
	_, err = o.runOn(t.Context(), s, io.Discard)
	require.NoError(t, err)
	var n int
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM pg_class WHERE relname LIKE $1`, s.table+"%").Scan(&n))
	assert.Zero(t, n)
}

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.db")
	db, err := sqladapter.OpenSQLite("sqlite", "file:"+file)
	require.NoError(t, err)
	require.NoError(t, db.PingContext(t.Context()))
	_, err = db.ExecContext(t.Context(), "VACUUM")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	r := run(t, "--sql", "sqlite:"+file, "--for", "200ms")
	assert.Positive(t, r.New)
	assert.Equal(t, 1, r.Workers)
}

// until waits for something that happens soon.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	require.Eventually(t, happened, time.Minute, time.Millisecond, what)
}

// An interrupted run removes its keys, and prints no figures.
func TestInterrupted(t *testing.T) {
	m := miniredis.RunT(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- execute(ctx, []string{"--redis", "redis://" + m.Addr(), "--for", "1h", "--layout",
			"compact"}, nil, &out, &errOut)
	}()
	until(t, "nothing is written", func() bool { return len(m.Keys()) > 50 })
	cancel()
	assert.Equal(t, cli.Interrupted, <-ended)
	assert.Empty(t, out.String())
	assert.Contains(t, errOut.String(), "interrupted")
	assert.Empty(t, m.Keys())
}

// A killed run leaves no key forever: each key has an expiry.
func TestKeysExpire(t *testing.T) {
	m := miniredis.RunT(t)
	o, err := parse("--redis", "redis://"+m.Addr(), "--for", "200ms", "--layout", "compact")
	require.NoError(t, err)
	r, err := newRedis(&o, "onceward-bench-x")
	require.NoError(t, err)
	t.Cleanup(r.close)
	require.NoError(t, r.open(t.Context()))
	_, err = o.measure(t.Context(), r, nil)
	require.NoError(t, err)
	require.Greater(t, len(m.Keys()), 10)
	for _, key := range m.Keys() {
		assert.Positive(t, m.TTL(key), key)
		assert.True(t, strings.HasPrefix(key, "onceward-bench-"), key)
	}
}

// fake is a server whose answers the test decides.
type fake struct {
	answer func(key string) (bool, error)
	used   bool
	dirty  error
	cleans int
}

func (*fake) title() string              { return "fake" }
func (*fake) look(context.Context) error { return nil }
func (*fake) open(context.Context) error { return nil }
func (*fake) remains() string            { return "a trace" }
func (*fake) close()                     {}
func (f *fake) full(context.Context) (bool, error) {
	return f.used, nil
}

func (f *fake) send(_ context.Context, key string) (bool, error) {
	time.Sleep(time.Millisecond) // in fake time
	return f.answer(key)
}

func (f *fake) clean(context.Context) error {
	f.cleans++
	return f.dirty
}

func fresh(string) (bool, error) { return false, nil }

func onFake(t *testing.T, f *fake, o Options) (*Report, error) {
	t.Helper()
	o.Workers = 2
	r, err := o.runOn(t.Context(), f, io.Discard)
	assert.Equal(t, 1, f.cleans)
	return r, err
}

// A failed message, and a new one that is taken for a duplicate, are errors and exit code 1.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := onFake(t, &fake{answer: func(key string) (bool, error) {
			if key == "w0-7" {
				return false, errors.New("refused")
			}
			return key == "w1-7", nil
		}}, Options{For: time.Second, MaxKeys: 1e9})
		require.NoError(t, err)
		assert.Equal(t, 2, r.Failures)
		assert.Len(t, r.Errors, 2)
		var out bytes.Buffer
		require.ErrorIs(t, r.write(&cli.Streams{Out: &out}, false), errFailed)
		assert.Contains(t, out.String(), "ERROR refused")
	})
}

// A server that fills up is not filled further, unless --force is given.
func TestMemoryEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{For: time.Minute, MaxKeys: 1e9}
		r, err := onFake(t, &fake{answer: fresh, used: true}, o)
		require.NoError(t, err)
		assert.Equal(t, "memory", r.EndedBy)
		o.Force = true
		r, err = onFake(t, &fake{answer: fresh, used: true}, o)
		require.NoError(t, err)
		assert.Equal(t, "time", r.EndedBy)
	})
}

func TestMaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := onFake(t, &fake{answer: fresh}, Options{For: time.Hour, MaxKeys: 100})
		require.NoError(t, err)
		assert.Equal(t, 100, r.New)
		assert.Equal(t, "max_keys", r.EndedBy)
	})
}

func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := onFake(t, &fake{answer: fresh, dirty: errors.New("gone")},
			Options{For: time.Second, MaxKeys: 10})
		require.ErrorIs(t, err, errLeft)
		assert.Contains(t, err.Error(), "a trace")
	})
}

// A server on another machine gets no connection before somebody has agreed.
func TestConfirm(t *testing.T) {
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.StartAddr("127.0.0.1:0"))
	t.Cleanup(m.Close)
	// this address leads to the same machine, but does not show that
	args := []string{"--redis", "redis://0.0.0.0:" + m.Port(), "--for", "200ms"}
	for answer, want := range map[string]int{"n\n": cli.Usage, "": cli.Usage, "y\n": cli.Done} {
		var out, errOut bytes.Buffer
		before := m.TotalConnectionCount()
		code := execute(t.Context(), args, strings.NewReader(answer), &out, &errOut)
		assert.Equal(t, want, code, errOut.String())
		assert.Contains(t, errOut.String(), "another machine")
		assert.Equal(t, want == cli.Done, m.TotalConnectionCount() > before)
	}
}

// A server that evicts, or is nearly full, or whose keys cannot be removed again, is refused.
func TestRefused(t *testing.T) {
	addr := servertest.Private(t, servertest.KindRedis).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	refused := func(want string, args ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		code := execute(t.Context(), append(args, "--for", "200ms"), nil, &out, &errOut)
		assert.Equal(t, cli.Usage, code)
		assert.Contains(t, errOut.String(), want)
		assert.NotContains(t, errOut.String(), "hunter22")
		assert.Zero(t, client.Exists(t.Context(), "onceward-bench-x").Val())
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	refused("maxmemory-policy is allkeys-lru", "--redis", "redis://"+addr)
	run(t, "--redis", "redis://"+addr, "--for", "200ms", "--force")
	assert.Zero(t, client.DBSize(t.Context()).Val())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, client.Set(t.Context(), "other", strings.Repeat("x", 10<<20), 0).Err())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "12mb").Err())
	refused("% of maxmemory are in use", "--redis", "redis://"+addr)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for _, command := range []string{"scan", "del"} {
		require.NoError(t, client.Do(t.Context(), "acl", "setuser", "few", "on", ">hunter22", "~*",
			"+@all", "-"+command).Err())
		refused("SCAN and DEL are needed", "--redis", "redis://few:hunter22@"+addr)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	const local = "--redis redis://127.0.0.1:1 "
	const database = "--sql postgres://127.0.0.1/x "
	for args, want := range map[string]string{
		"":                         "--redis or --sql is missing",
		local + "--schema s":       "--schema needs --sql",
		database + "--layout full": "need --redis",
		database + "--force":       "need --redis",
		database + "--schema a;b":  "--schema ",
		local + "--layout thin":    "one of full, compact",
		local + "--for 1ms":        "--for is 1ms",
		local + "--workers -1":     "--workers is -1",
		local + "--dup 100%":       "--dup is 1",
		local + "--max-keys 0":     "--max-keys is 0",
		"--redis redis://u:hunter22@10.1.2.3 --json": "--json needs --yes",
	} {
		_, err := parse(strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
		assert.NotContains(t, err.Error(), "hunter22")
	}
}
