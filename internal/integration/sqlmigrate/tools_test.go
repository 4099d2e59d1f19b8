package sqlmigrate_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

var errGone = driver.ErrBadConn

// waitFor returns when somebody waits for the lock of migrations.
func waitFor(t *testing.T, db *sql.DB, d sqlmigrate.Dialect) {
	t.Helper()
	ask := `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%onceward migrate%'`
	if d == sqlmigrate.MySQL {
		ask = `SELECT count(*) FROM ` + servertest.Processlist + ` WHERE state = 'User lock'`
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), ask).Scan(&n))
		if n > 0 {
			return
		}
	}
}

// TestGolangMigrate: golang-migrate goes up, down and up again on data, and our own code finds the
// result.
func TestGolangMigrate(t *testing.T) {
	s := newStore(t, engines()[0])
	source, err := iofs.New(s.Files(), ".")
	require.NoError(t, err)
	target, err := pgxmigrate.WithInstance(s.db,
		&pgxmigrate.Config{SchemaName: s.schema, MigrationsTable: "theirs"})
	require.NoError(t, err)
	tool, err := migrate.NewWithInstance("iofs", source, "pgx5", target)
	require.NoError(t, err)
	do := func(what string, err error, want int) {
		t.Helper()
		require.NoError(t, err, what)
		s.has(want)
	}
	do("up", tool.Up(), 3)
	s.exec("INSERT INTO " + s.name(s.table) + " (id) VALUES (1)")
	assert.NoError(t, s.Check(t.Context(), s.db))
	do("two down", tool.Steps(-2), 1)
	do("up again", tool.Up(), 3)
	do("down", tool.Down(), 0)
	do("up from nothing", tool.Up(), 3)
	assert.ErrorIs(t, tool.Up(), migrate.ErrNoChange, "up when up")
}

// TestGoose: the same, on every engine that it knows.
func TestGoose(t *testing.T) {
	speaks := map[sqlmigrate.Dialect]goose.Dialect{
		sqlmigrate.Postgres: goose.DialectPostgres, sqlmigrate.MySQL: goose.DialectMySQL,
		sqlmigrate.SQLite: goose.DialectSQLite3,
	}
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		tool, err := goose.NewProvider(speaks[e.dialect], s.db, s.GooseFiles(),
			goose.WithTableName(s.schema+".theirs"))
		require.NoError(t, err)
		do := func(what string, err error, want int) {
			t.Helper()
			require.NoError(t, err, what)
			s.has(want)
		}
		_, err = tool.Up(t.Context())
		do("up", err, 3)
		s.exec("INSERT INTO " + s.name(s.table) + " (id) VALUES (1)")
		_, err = tool.DownTo(t.Context(), 1)
		do("down to 1", err, 1)
		_, err = tool.Up(t.Context())
		do("up again", err, 3)
		_, err = tool.DownTo(t.Context(), 0)
		do("down", err, 0)
		_, err = tool.Up(t.Context())
		do("up from nothing", err, 3)
		assert.NoError(t, s.Check(t.Context(), s.db))
	})
}
