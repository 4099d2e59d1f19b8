package migrate

import (
	"bytes"
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// command runs the command without anybody who answers.
func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return answered(t.Context(), "", args...)
}

// answered runs the command with the given input.
func answered(ctx context.Context, answer string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	s := &cli.Streams{In: strings.NewReader(answer), Out: &o, Err: &e}
	code = cli.Run(ctx, s, Command(), args...)
	return code, o.String(), e.String()
}

// engine is a database.
type engine struct {
	name string
	// open returns the value of --sql, and a pool.
	open func(t *testing.T) (dsn string, db *sql.DB)
}

var engines = []engine{
	{"sqlite", func(t *testing.T) (string, *sql.DB) {
		file := filepath.Join(t.TempDir(), "a.db")
		return "sqlite:" + file, opened(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	}},
	{"postgres", func(t *testing.T) (string, *sql.DB) {
		dsn := servertest.Postgres(t)
		return dsn, opened(t, "pgx", dsn)
	}},
	{"mysql", func(t *testing.T) (string, *sql.DB) {
		dsn := servertest.MariaDB(t)
		return dsn, opened(t, "mysql", dsn)
	}},
}

func opened(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.PingContext(t.Context()))
	return db
}

// rig is tables of one kind, with a name of their own.
type rig struct {
	t     *testing.T
	db    *sql.DB
	table string
	flags []string
	// newest is the newest version of this kind.
	newest int
	// window has the flags that marks need with --apply.
	window []string
}

func newRig(t *testing.T, e engine, kind string, more ...string) *rig {
	t.Helper()
	dsn, db := e.open(t)
	r := &rig{t: t, db: db, table: servertest.Prefix(t)}
	r.flags = append([]string{"--sql", dsn, "--kind", kind, "--table", r.table}, more...)
	r.newest = 1
	if kind == "outbox" {
		r.newest = 2
	}
	if kind == "marks" {
		r.window = []string{"--window", "72h"}
		if e.name != "sqlite" && !slices.Contains(more, "generations") {
			r.newest = 3
		}
	}
	t.Cleanup(func() {
		code, out, errOut := answered(context.Background(),
			"", slices.Concat(r.flags, []string{"--to", "0", "--apply", "--drop", "--yes"})...)
		assert.Equal(t, cli.Done, code, "at the end: %d, %s%s", code, out, errOut)
	})
	return r
}

// want runs the command, and checks its exit code and that its output has words.
func (r *rig) want(code int, words string, args ...string) string {
	r.t.Helper()
	got, out, errOut := command(r.t, slices.Concat(r.flags, args)...)
	assert.Equal(r.t, code, got, "migrate %s: exit code %d, want %d and %q:\n%s%s",
		strings.Join(args, " "), got, code, words, out, errOut)
	assert.Contains(r.t, out+errOut, words, "migrate %s: exit code %d, want %d and %q:\n%s%s",
		strings.Join(args, " "), got, code, words, out, errOut)
	return out
}

func (r *rig) up(more ...string) []string {
	return append(append([]string{"--apply"}, r.window...), more...)
}

func (r *rig) exec(statement string) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(),
		strings.ReplaceAll(statement, "TABLE_NAME", r.table))
	require.NoError(r.t, err, statement)
}

// forEach runs a test on every engine, with every kind.
func forEach(t *testing.T, test func(t *testing.T, e engine, r *rig)) {
	for _, e := range engines {
		for _, kind := range kinds {
			t.Run(e.name+"/"+kind, func(t *testing.T) { test(t, e, newRig(t, e, kind)) })
		}
		if e.name != "sqlite" {
			t.Run(e.name+"/generations", func(t *testing.T) {
				test(t, e, newRig(t, e, "marks", "--retention", "generations"))
			})
		}
	}
}
