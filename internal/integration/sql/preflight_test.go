package sql_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlpreflight"
)

// wantFindings requires these, in any order, each as "severity code", and no other.
func wantFindings(t *testing.T, db *sql.DB, cfg sqlpreflight.Config, want ...string) {
	t.Helper()
	found, err := sqlpreflight.Run(t.Context(), db, cfg)
	require.NoError(t, err)
	var got []string
	for i, f := range found {
		got = append(got, f.Severity.String()+" "+f.Code)
		assert.NotEmpty(t, f.Detail, "finding %d", i)
		assert.NotEmpty(t, f.Why, "finding %d", i)
		assert.NotEmpty(t, f.Fix, "finding %d", i)
		assert.False(t, i > 0 && f.Severity > found[i-1].Severity, "finding %d", i)
	}
	slices.Sort(got)
	slices.Sort(want)
	assert.Equal(t, want, got, "%v", found)
	assert.Zero(t, db.Stats().InUse, "connections were not given back")
}

func execAll(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

func TestPreflightPostgres(t *testing.T) {
	t.Parallel()
	private := servertest.Private(t, servertest.KindPostgres)
	open := func(mode string) *sql.DB {
		return openDB(t, "pgx", postgresURL(t, private.Addr, mode))
	}
	db := open("cache_statement")
	pg := func(tables ...string) sqlpreflight.Config {
		return sqlpreflight.Config{Dialect: sqladapter.Postgres, Tables: tables}
	}
	wantFindings(t, db, pg(), "note idle_in_transaction")
	execAll(t, db, `ALTER DATABASE onceward SET idle_in_transaction_session_timeout = '1min'`)

	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres, Namespace: "shop"})
	require.NoError(t, err)
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.Postgres,
		Group: "g"})
	require.NoError(t, err)
	db = open("cache_statement")
	require.NoError(t, marks.Migrate(t.Context(), db))
	require.NoError(t, fence.Migrate(t.Context(), db))
	tables := []string{"onceward_marks", "onceward_fence"}
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec"} {
		wantFindings(t, open(mode), pg(tables...))
	}
	wantFindings(t, open("simple_protocol"), pg(tables...), "warning simple_protocol")

	inTurn, err := sqladapter.New(sqladapter.Config{
		Dialect: sqladapter.Postgres, Namespace: "shop", Table: "inturn",
		Retention: sqladapter.Generations, Window: time.Hour,
	})
	require.NoError(t, err)
	require.NoError(t, inTurn.Migrate(t.Context(), db))
	wantFindings(t, open("exec"), pg("inturn"))
	execAll(t, db, `ALTER TABLE inturn_g1_open SET UNLOGGED`,
		`ALTER TABLE inturn_g0 DROP CONSTRAINT inturn_g0_pkey`)
	wantFindings(t, open("exec"), pg("inturn"), "critical unlogged", "critical no_unique_index")

	execAll(t, db,
		`CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`CREATE TABLE blind (id text COLLATE blind PRIMARY KEY)`,
		`CREATE TABLE ordered (id text COLLATE "und-x-icu" UNIQUE)`,
		`CREATE TABLE plain (id text COLLATE "C" PRIMARY KEY)`,
		`CREATE UNLOGGED TABLE bare (id uuid, created_at timestamptz)`,
		`ALTER TABLE onceward_marks SET UNLOGGED`)
	wantFindings(t, open("exec"),
		pg("blind", "ordered", "plain", "bare", "nowhere", "onceward_marks"),
		"critical collation", "warning collation", "critical unlogged", "critical no_unique_index",
		"warning no_retention_index",
		"critical no_table", "critical unlogged")

	// Indexes that do not serve as unique ones, and text without a unique index or in the default
	// order.
	execAll(t, db,
		`CREATE TABLE part (id uuid)`, `CREATE UNIQUE INDEX ON part (id) WHERE id IS NOT NULL`,
		`CREATE TABLE indexed (id uuid, name text COLLATE "und-x-icu")`,
		`CREATE INDEX ON indexed (id)`, `CREATE INDEX ON indexed (name)`,
		`CREATE TABLE broken (id uuid UNIQUE, created_at timestamptz)`,
		`CREATE INDEX ON broken (created_at)`,
		`UPDATE pg_index SET indisvalid = false WHERE indrelid = 'broken'::regclass`,
		`CREATE TABLE local (id text PRIMARY KEY)`,
		`CREATE SCHEMA shop`, `CREATE UNLOGGED TABLE shop.plain (id uuid PRIMARY KEY)`)
	wantFindings(t, open("exec"), pg("part", "indexed", "broken", "local"),
		"critical no_unique_index", "critical no_unique_index", "critical no_unique_index",
		"warning no_retention_index")
	shop := pg("plain")
	shop.Schema = "shop"
	wantFindings(t, open("exec"), shop, "critical unlogged")

	execAll(t, db, `ALTER SYSTEM SET fsync = off`, `ALTER SYSTEM SET full_page_writes = off`,
		`SELECT pg_reload_conf()`,
		`ALTER DATABASE onceward SET synchronous_commit = off`,
		`ALTER DATABASE onceward SET default_transaction_isolation = 'serializable'`)
	poll(t, "the settings", func() bool {
		var off bool
		err := db.QueryRowContext(t.Context(),
			`SELECT current_setting('fsync') = 'off'`).Scan(&off)
		require.NoError(t, err)
		return off
	})
	wantFindings(t, open("exec"), pg(), "critical fsync", "critical full_page_writes",
		"warning synchronous_commit", "note isolation")
	execAll(t, db, `ALTER DATABASE onceward SET default_transaction_read_only = on`)
	found, err := sqlpreflight.Run(t.Context(), open("exec"), pg())
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(found, func(f preflight.Finding) bool {
		return f.Code == "read_only" && strings.HasPrefix(f.Server, "127.0.0.1:") &&
			strings.HasSuffix(f.Detail,
				"default_transaction_read_only is on, transaction_read_only on")
	}), "read-only: %v", found)
}

func TestPreflightMariaDB(t *testing.T) {
	t.Parallel()
	private := servertest.Private(t, servertest.KindMariaDB)
	good := func(c *mysql.Config) {
		c.Params["autocommit"], c.Params["tx_isolation"], c.Params["innodb_lock_wait_timeout"] =
			"0", "'READ-COMMITTED'", "5"
	}
	db := openDB(t, "mysql", mariadbDSN(t, private.Addr, good))
	my := func(tables ...string) sqlpreflight.Config {
		return sqlpreflight.Config{Dialect: sqladapter.MySQL, Tables: tables}
	}
	execAll(t, db, `SET GLOBAL innodb_flush_log_at_trx_commit = 1`)
	wantFindings(t, db, my())
	wantFindings(t, openDB(t, "mysql", mariadbDSN(t, private.Addr, nil)), my(), "note autocommit",
		"note isolation", "note innodb_lock_wait_timeout")
	wantFindings(t, openDB(t, "mysql", mariadbDSN(t, private.Addr, func(c *mysql.Config) {
		good(c)
		c.ClientFoundRows = true
	})), my(), "critical client_found_rows")

	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.MySQL, Group: "g"})
	require.NoError(t, err)
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.MySQL, Namespace: "shop"})
	require.NoError(t, err)
	generations, err := sqladapter.New(sqladapter.Config{
		Dialect: sqladapter.MySQL, Namespace: "shop", Table: "turns", Window: time.Hour,
		Retention: sqladapter.Generations,
	})
	require.NoError(t, err)
	for _, migrate := range []func() error{
		func() error {
			return fence.Migrate(t.Context(), db)
		}, func() error { return marks.Migrate(t.Context(), db) },
		func() error { return generations.Migrate(t.Context(), db) },
	} {
		require.NoError(t, migrate())
	}
	wantFindings(t, db, my("onceward_fence", "onceward_marks", "turns"))
	execAll(t, db,
		`CREATE TABLE blind (id VARCHAR(20) PRIMARY KEY)`,
		`CREATE TABLE trimmed (id VARCHAR(20) COLLATE utf8mb4_bin, UNIQUE KEY (id))`,
		`CREATE TABLE bare (id BINARY(16), created_at BIGINT) ENGINE=MyISAM`,
		`CREATE TABLE indexed (id BINARY(16), name VARCHAR(20), KEY (id), KEY (name))`,
		`CREATE TABLE aged (id BINARY(16) PRIMARY KEY, created_at BIGINT)`)
	wantFindings(t, db, my("indexed", "aged"), "critical no_unique_index",
		"warning no_retention_index")
	execAll(t, db, `SET GLOBAL innodb_flush_log_at_trx_commit = 2`)
	wantFindings(t, db, my("blind", "trimmed", "bare", "nowhere"),
		"warning innodb_flush_log_at_trx_commit",
		"critical collation", "warning collation", "critical engine", "critical no_unique_index",
		"warning no_retention_index", "critical no_table")
	cfg := my("onceward_fence")
	cfg.Schema = "information_schema"
	wantFindings(t, db, cfg, "warning innodb_flush_log_at_trx_commit", "critical no_table")
}

func TestPreflightSQLite(t *testing.T) {
	lite := func(tables ...string) sqlpreflight.Config {
		return sqlpreflight.Config{Dialect: sqladapter.SQLite, Tables: tables}
	}
	file := "file:" + filepath.Join(t.TempDir(), "p.db")
	open := func(dsn string) *sql.DB { return openDB(t, "sqlite", dsn) }
	const well = "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	db := open(file + well)
	wantFindings(t, db, lite())
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.SQLite,
		Group: "g"})
	require.NoError(t, err)
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "shop"})
	require.NoError(t, err)
	for _, migrate := range []func() error{
		func() error {
			return fence.Migrate(t.Context(), db)
		}, func() error { return marks.Migrate(t.Context(), db) },
	} {
		require.NoError(t, migrate())
	}
	wantFindings(t, db, lite("onceward_fence", "onceward_marks"))
	execAll(t, db, `CREATE TABLE blind (id TEXT COLLATE NOCASE PRIMARY KEY)`,
		`CREATE TABLE bare (id BLOB, created_at INTEGER)`,
		`CREATE TABLE counted (id INTEGER PRIMARY KEY)`)
	wantFindings(t, db, lite("blind", "bare", "counted", "nowhere"), "critical collation",
		"critical no_unique_index", "warning no_retention_index", "critical no_table")
	execAll(t, db, `CREATE TABLE part (id BLOB)`,
		`CREATE UNIQUE INDEX part_id ON part (id) WHERE id IS NOT NULL`,
		`CREATE TABLE indexed (id BLOB, name TEXT COLLATE NOCASE)`,
		`CREATE INDEX indexed_id ON indexed (id)`, `CREATE INDEX indexed_name ON indexed (name)`,
		`CREATE TABLE aged (id BLOB PRIMARY KEY, created_at INTEGER)`)
	wantFindings(t, db, lite("part", "indexed", "aged"), "critical no_unique_index",
		"critical no_unique_index", "warning no_retention_index")

	wantFindings(t, open(file+"?_pragma=busy_timeout(0)&_pragma=synchronous(NORMAL)"), lite(),
		"warning busy_timeout", "warning synchronous", "warning txlock")
	other := "file:" + filepath.Join(t.TempDir(), "q.db")
	wantFindings(t, open(other+
		"?_txlock=immediate&_pragma=busy_timeout(10)&_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)"), lite(), "critical journal_mode", "critical synchronous")
	one := open(file + well)
	one.SetMaxOpenConns(1)
	wantFindings(t, one, lite(), "note not_seen")
	execAll(t, one, `ATTACH '`+filepath.Join(t.TempDir(), "shop.db")+`' AS shop`,
		`PRAGMA shop.synchronous = OFF`, `CREATE TABLE shop.attached (id BLOB)`)
	shop := lite("attached")
	shop.Schema = "shop"
	wantFindings(t, one, shop, "note not_seen", "critical synchronous", "critical no_unique_index")
	found, err := sqlpreflight.Run(t.Context(), one, shop)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(found[0].Server, "shop.db"), "found at %v", found)
	wantFindings(t, open("file::memory:?_pragma=busy_timeout(10)"), lite(), "critical in_memory",
		"critical journal_mode")
}

// TestPreflightSQLiteLeavesNothing: Preflight leaves its two connections unchanged.
func TestPreflightSQLiteLeavesNothing(t *testing.T) {
	for txlock, want := range map[string][]string{"deferred": {"warning txlock"},
		"immediate": nil} {
		t.Run(txlock, func(t *testing.T) {
			db := openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "p.db")+
				"?_txlock="+txlock+"&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
			db.SetMaxOpenConns(2)
			wantFindings(t, db, sqlpreflight.Config{Dialect: sqladapter.SQLite}, want...)
			for i := range 2 { // the first stays open, so the second is another one
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				var timeout int
				err = conn.QueryRowContext(t.Context(),
					`PRAGMA busy_timeout`).Scan(&timeout)
				require.NoError(t, err, "connection %d has a busy timeout", i)
				assert.Equal(t, 5000, timeout, "connection %d has a busy timeout", i)
				for _, statement := range []string{`BEGIN IMMEDIATE`, `ROLLBACK`} {
					_, err := conn.ExecContext(t.Context(), statement)
					assert.NoError(t, err, "connection %d: %s", i, statement)
				}
			}
		})
	}
}
