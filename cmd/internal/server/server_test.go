package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/sqladapter"
)

func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	var o Options
	err := cli.Parse(&cli.Command{Use: "x", Flags: o.Flags,
		Check: func([]string) error { return o.Check() },
		Run:   func(context.Context, *cli.Streams) error { return nil }}, args...)
	return &o, err
}

func TestCheckRefuses(t *testing.T) {
	t.Setenv("PASSWORD", "hunter22")
	for args, want := range map[string]string{
		"":                                 "--redis or --sql is missing",
		"--redis redis://a --sql sqlite:x": "exclude each other",
		"--cluster --sql sqlite:x":         "need --redis",
		"--redis-password-env NOT_SET --redis redis://a":       "the environment has no NOT_SET",
		"--redis redis://u:hunter22/x@host":                    "must be escaped",
		"--redis redis://:hunter22#x@host":                     "must be escaped",
		"--redis redis://u:%hunter22@host":                     "must be escaped",
		"--redis http://u:hunter22@host":                       `the scheme "http"`,
		"--redis redis://u:hunter22@host/x":                    "--redis",
		"--redis redis://u:hunter22@host?what=1":               "the unknown parameter what",
		"--redis redis://u:hunter22@host?master_name=m&what=1": "the unknown parameter what",
		"--cluster --redis redis://u:hunter22@host?what=1":     "the unknown parameter what",
		"--sql oracle://u:hunter22@host":                       "--sql is none of",
		"--sql postgres://u:%hunter22@host":                    "--sql is none of",
		"--sql postgres://":                                    "--sql is none of",
		"--sql mysql://u:hunter22@":                            "--sql is none of",
		"--sql u:hunter22@tcp(host)":                           "--sql is none of",
		"--sql env:NOT_SET":                                    "the environment has no NOT_SET",
		"--sql sqlite:/not/there.db":                           `there is no database "/not/there.db"`,
	} {
		_, err := parse(t, strings.Fields(args)...)
		assert.ErrorContains(t, err, want, "%s: %v, want an error with %q", args, err, want)
		assert.False(t, err != nil && strings.Contains(err.Error(), "unter22"),
			"a password is in %q", err)
	}
}

func TestOpenRedis(t *testing.T) {
	t.Setenv("PASSWORD", "other")
	o, err := parse(t, "--redis", "rediss://u:p@host:1234/2", "--redis-password-env", "PASSWORD")
	require.NoError(t, err)
	client, err := o.OpenRedis()
	require.NoError(t, err)
	single, ok := client.(*redis.Client)
	assert.True(t, ok, client)
	assert.Equal(t, "other", single.Options().Password, client)
	assert.Equal(t, "u", single.Options().Username, client)
	assert.Equal(t, 2, single.Options().DB, client)
	assert.NotNil(t, single.Options().TLSConfig, client)
	_ = client.Close()
	o, err = parse(t, "--cluster",
		"--redis", "redis://u:p@host:1234?addr=two:1")
	require.NoError(t, err)
	client, err = o.OpenRedis()
	require.NoError(t, err)
	cluster, ok := client.(*redis.ClusterClient)
	assert.True(t, ok, client)
	require.Len(t, cluster.Options().Addrs, 2, client)
	assert.Equal(t, "p", cluster.Options().Password, client)
	_ = client.Close()
}

func TestReadDSN(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	t.Setenv("DSN", "postgres://u@h/db")
	for dsn, want := range map[string]engine{
		"postgres://u:pass@h/db": {sqladapter.Postgres,
			"pgx", "postgres://u:pass@h/db", "pass"},
		"env:DSN": {sqladapter.Postgres,
			"pgx", "postgres://u@h/db", ""},
		"u:pass@tcp(h:1)/db?x=1": {sqladapter.MySQL,
			"mysql", "u:pass@tcp(h:1)/db?x=1", "pass"},
		"mysql:u:pass@tcp(h:1)/db": {sqladapter.MySQL,
			"mysql", "u:pass@tcp(h:1)/db", "pass"},
		"mysql://u:pass@h/db?autocommit=0": {sqladapter.MySQL,
			"mysql", "u:pass@tcp(h:3306)/db?autocommit=0", "pass"},
		"sqlite:" + file: {sqladapter.SQLite, "sqlite", file, ""},
		"file:" + file + "?_txlock=immediate": {sqladapter.SQLite,
			"sqlite", "file:" + file + "?_txlock=immediate", ""},
	} {
		o, err := parse(t, "--sql", dsn)
		require.NoError(t, err, dsn)
		assert.Equal(t, want, o.engine, dsn)
	}
}

func TestHide(t *testing.T) {
	o, err := parse(t, "--redis", "redis://u:hunter22@host")
	require.NoError(t, err)
	assert.Equal(t, "dial ***@host", o.Hide("dial hunter22@host"))
}

// A server is local only if its address shows that.
func TestLocal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for args, want := range map[string]bool{
		"--redis redis://localhost":                                      true,
		"--redis redis://127.0.0.2:1":                                    true,
		"--redis redis://[::1]:1":                                        true,
		"--redis unix:///run/redis.sock":                                 true,
		"--redis redis://0.0.0.0:1":                                      false,
		"--redis redis://192.0.2.1":                                      false,
		"--redis redis://localhost.example.com":                          false,
		"--cluster --redis redis://127.0.0.1:1?addr=127.0.0.1:2":         true,
		"--cluster --redis redis://127.0.0.1:1?addr=192.0.2.1:2":         false,
		"--redis redis://127.0.0.1:1?master_name=m":                      true,
		"--redis redis://127.0.0.1:1?master_name=m&addr=192.0.2.1:26379": false,
		"--sql sqlite:" + file:                                           true,
		"--sql postgres://u@127.0.0.1/db":                                true,
		"--sql postgres:///db?host=/run/postgresql":                      true,
		"--sql postgres://u@db.example.com/db":                           false,
		"--sql postgres:///db?host=127.0.0.1,192.0.2.1&port=1,2":         false,
		"--sql mysql://u@127.0.0.1/db":                                   true,
		"--sql u@unix(/run/mysqld.sock)/db":                              true,
		"--sql u@tcp(db.example.com:3306)/db":                            false,
	} {
		o, err := parse(t, strings.Fields(args)...)
		if !assert.NoError(t, err, args) {
			continue
		}
		got, err := o.Local()
		assert.Equal(t, want, got, "%s: local %t, %v", args, got, err)
		assert.NoError(t, err, "%s: local %t, %v", args, got, err)
	}
}

func TestMinPool(t *testing.T) {
	standard := 10 * runtime.GOMAXPROCS(0)
	for _, test := range []struct {
		url       string
		min, want int
	}{
		{"redis://h", 0, standard}, {"redis://h", 1, standard},
		{"redis://h", standard + 5, standard + 5},
		{"redis://h?pool_size=3", 0, 3}, {"redis://h?pool_size=3", 2, 3},
		{"redis://h?pool_size=3", 7, 7},
	} {
		o := Options{Redis: test.url, MinPool: test.min}
		client, err := o.OpenRedis()
		require.NoError(t, err)
		got := client.(*redis.Client).Options().PoolSize
		assert.Equal(t, test.want, got, "%s, at least %d: %d connections", test.url, test.min,
			got)
		_ = client.Close()
	}
}

// If an error only says that the time is over, the server's address is added.
func TestUnanswered(t *testing.T) {
	for args, want := range map[string]string{
		"--redis redis://u:hunter22@192.0.2.1:7000":              "from 192.0.2.1:7000:",
		"--redis redis://192.0.2.1":                              "from 192.0.2.1:6379:",
		"--redis redis://192.0.2.1:1?master_name=m&addr=h:2":     "from 192.0.2.1:1, h:2:",
		"--redis unix:///run/redis.sock":                         "from the server:",
		"--sql postgres://u:hunter22@db.example.com/db":          "from db.example.com:5432:",
		"--sql postgres:///db?host=192.0.2.1,192.0.2.2&port=1,2": "from 192.0.2.1:1, 192.0.2.2:2:",
		"--sql u:hunter22@tcp(db.example.com:3306)/db":           "from db.example.com:3306:",
	} {
		o, err := parse(t, strings.Fields(args)...)
		if !assert.NoError(t, err, args) {
			continue
		}
		for _, timeout := range []error{context.DeadlineExceeded,
			fmt.Errorf("ask: %w", os.ErrDeadlineExceeded)} {
			err := o.Unanswered(timeout)
			assert.ErrorIs(t, err, timeout, args)
			assert.Contains(t, err.Error(), want, args)
			assert.NotContains(t, err.Error(), "hunter22", args)
		}
		err = o.Unanswered(fmt.Errorf("ask: %w", io.EOF))
		assert.ErrorIs(t, err, io.EOF, args)
		assert.Contains(t, err.Error(), "TLS", args)
		err = o.Unanswered(io.ErrClosedPipe)
		assert.ErrorIs(t, err, io.ErrClosedPipe, "%s: %v, and nothing was late", args, err)
		assert.NoError(t, o.Unanswered(nil), args)
	}
}
