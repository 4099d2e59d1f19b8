package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// storeEngine is a database in which a Store may be.
type storeEngine struct {
	name    string
	dialect sqladapter.Dialect
	driver  string
	// dsn of a database that other connections of the test can open, too.
	dsn func(t testing.TB) string
	// pgx has the store over a pool of pgx, with nothing of database/sql in between.
	pgx bool
}

// storePgx is storePostgres over a pool of pgx.
func storePgx(name string, params map[string]string) storeEngine {
	return storePostgres(name, params).overPgx()
}

func (e storeEngine) overPgx() storeEngine {
	e.name, e.pgx = e.name+" over pgx", true
	return e
}

// newStore makes another store in a table.
func (e storeEngine) newStore(t testing.TB, db *sql.DB, table string) *sqlstore.Store {
	t.Helper()
	if !e.pgx {
		return newStore(t, db, e.dialect, table)
	}
	cfg, err := pgxpool.ParseConfig(e.dsn(t))
	require.NoError(t, err)
	cfg.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := pgxv5.NewStore(pool, sqlstore.Options{Table: table})
	require.NoError(t, err)
	return store
}

var storeSQLite = storeEngine{name: "sqlite", dialect: sqladapter.SQLite, driver: "sqlite",
	dsn: sqliteStore}

func sqliteStore(t testing.TB) string {
	return sqliteDSN(filepath.Join(t.TempDir(), "store.db"), "deferred") +
		"&_pragma=synchronous(OFF)"
}

// storePostgres sets parameters of the connection, as a server's defaults would.
func storePostgres(name string, params map[string]string) storeEngine {
	dsn := func(t testing.TB) string {
		t.Helper()
		u, err := url.Parse(servertest.Postgres(t))
		require.NoError(t, err)
		q := u.Query()
		for key, value := range params {
			q.Set(key, value)
		}
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		return u.String()
	}
	return storeEngine{name: name, dialect: sqladapter.Postgres, driver: "pgx", dsn: dsn}
}

// storeMariaDB adds to the DSN.
func storeMariaDB(name, params string) storeEngine {
	dsn := func(t testing.TB) string {
		t.Helper()
		return servertest.MariaDB(t) + params
	}
	return storeEngine{name: name, dialect: sqladapter.MySQL, driver: "mysql", dsn: dsn}
}

// storeEngines are one of each kind.
func storeEngines() []storeEngine {
	return []storeEngine{storeSQLite, storePostgres("postgres", nil),
		storePgx("postgres", nil), storeMariaDB("mariadb", "&interpolateParams=true")}
}

// openStore makes a store in a table of its own, and drops it when the test ends.
func openStore(t testing.TB, e storeEngine) (*sqlstore.Store, *sql.DB, string) {
	t.Helper()
	db := openDB(t, e.driver, e.dsn(t))
	db.SetMaxOpenConns(24)
	if e.dialect == sqladapter.SQLite {
		db.SetMaxOpenConns(1) // there is one writer: others would wait by polling
	}
	table := servertest.Prefix(t)
	store := e.newStore(t, db, table)
	require.NoError(t, store.Migrate(t.Context()))
	t.Cleanup(func() {
		assert.NoError(t, store.Drop(context.WithoutCancel(t.Context())))
	})
	return store, db, table
}

func newStore(t testing.TB, db *sql.DB, dialect sqladapter.Dialect,
	table string) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: dialect, Table: table})
	require.NoError(t, err)
	return store
}

// quotedTable is how a statement of the test's own names it.
func quotedTable(dialect sqladapter.Dialect, table string) string {
	if dialect == sqladapter.MySQL {
		return "`" + table + "`"
	}
	return `"` + table + `"`
}

// idLiteral is an id as a statement of the test's own writes it.
func idLiteral(dialect sqladapter.Dialect, id [16]byte) string {
	if dialect == sqladapter.Postgres {
		return fmt.Sprintf("'%x'::uuid", id)
	}
	return fmt.Sprintf("x'%x'", id)
}
