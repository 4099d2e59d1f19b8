// Package layered_test runs leases in Redis in front of records in a database, with a Bloom filter
// that follows the table, as several processes do.
package layered_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// backend is where the two layers are.
type backend struct {
	name    string
	dialect sqladapter.Dialect
	driver  string
	dsn     func(t testing.TB) string
	redis   func(t testing.TB) redis.UniversalClient // one of this test's own: it is flushed
}

func embedded(t testing.TB) redis.UniversalClient {
	_, client := redistest.Mini(t)
	return client
}

func private(t testing.TB) redis.UniversalClient {
	return redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
}

var backends = []backend{
	{"sqlite and miniredis", sqladapter.SQLite, "sqlite", func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "records.db") +
			"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	}, embedded},
	{"postgres and redis", sqladapter.Postgres, "pgx", servertest.Postgres, private},
	{"mariadb and redis", sqladapter.MySQL, "mysql", func(t testing.TB) string {
		return servertest.MariaDB(t) + "&interpolateParams=true"
	}, private},
}

// open makes a table of the test's own.
func (p backend) open(t testing.TB) *sqlstore.Store {
	t.Helper()
	db, err := sql.Open(p.driver, p.dsn(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
	})
	db.SetMaxOpenConns(12)
	if p.dialect == sqladapter.SQLite {
		db.SetMaxOpenConns(1)
	}
	store, err := sqlstore.New(db,
		sqlstore.Options{Dialect: p.dialect, Table: servertest.Prefix(t)})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	t.Cleanup(func() {
		assert.NoError(t, store.Drop(context.WithoutCancel(t.Context())))
	})
	return store
}
