package sql_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// role is a user of the server who has no rights but those that a test grants.
type role struct {
	*sql.DB
	owner *sql.DB
	name  string // quoted, as GRANT wants it
}

// newRole makes a role. The owner is the tests' own user, who may do everything.
func newRole(t *testing.T, e engine, owner *sql.DB) *role {
	t.Helper()
	name := "r" + strings.TrimPrefix(servertest.Prefix(t), "ow_")
	r := &role{owner: owner}
	if e.dialect == sqladapter.Postgres {
		r.name = `"` + name + `"`
		r.must(t, `CREATE ROLE `+r.name+` NOLOGIN`)
		u, err := url.Parse(postgresURL(t, servertest.Postgres(t), "cache_statement"))
		require.NoError(t, err)
		q := u.Query()
		q.Set("role", name)
		u.RawQuery = q.Encode()
		r.DB = openDB(t, "pgx", u.String())
		t.Cleanup(func() { r.must(t, `DROP OWNED BY `+r.name); r.must(t, `DROP ROLE `+r.name) })
		return r
	}
	name = name[max(0, len(name)-32):] // MySQL's limit for a user
	r.name = `'` + name + `'@'%'`
	r.must(t, `CREATE USER `+r.name+` IDENTIFIED BY 'onceward'`)
	r.DB = openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(cfg *mysql.Config) {
		cfg.User, cfg.Passwd = name, "onceward"
	}))
	t.Cleanup(func() { r.must(t, `DROP USER `+r.name) })
	return r
}

func (r *role) must(t *testing.T, query string) {
	t.Helper()
	_, err := r.owner.ExecContext(context.WithoutCancel(t.Context()), query)
	require.NoError(t, err, query)
}

// grant gives rights on a table.
func (r *role) grant(t *testing.T, rights, table string) {
	t.Helper()
	r.must(t, `GRANT `+rights+` ON `+table+` TO `+r.name)
}

func (r *role) revoke(t *testing.T, rights, table string) {
	t.Helper()
	r.must(t, `REVOKE `+rights+` ON `+table+` FROM `+r.name)
}

// Prevents: the error for a missing right says to drop the table. Whoever follows this drops the
// records, and every redelivered message runs again.
func TestMissingRightIsNotAnotherForm(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			r := newRole(t, e, s.db)
			box, err := outbox.New(outbox.Config{Dialect: outboxDialects[e.dialect],
				Table: s.table + "_box"})
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context(), s.db))
			t.Cleanup(func() {
				assert.NoError(t, box.MigrateDown(context.WithoutCancel(t.Context()), s.db, 0))
			})
			store, err := sqlstore.New(r.DB,
				sqlstore.Options{Dialect: e.dialect, Table: s.table + "_claims"})
			require.NoError(t, err)

			told := "the role needs "
			if e.dialect == sqladapter.MySQL {
				// MariaDB hides a table of versions that the role has no right to: none is on
				// record then.
				r.grant(t, "SELECT", "onceward_migrations")
				// its own words: "SELECT command denied to user ... for table"
				told = "denied to user"
				r.grant(t, "SELECT", s.ledger) // without any right there is no connection
				r.grant(t, "UPDATE", s.table)  // ON DUPLICATE KEY UPDATE
			}
			// The rights are granted step by step. Until the last step one is missing.
			steps := []struct{ rights, table string }{
				{"SELECT", "onceward_migrations"}, {"SELECT", s.table + "_meta"},
				{"SELECT", s.table + "_results"}, {"INSERT", s.table},
			}
			for i := 0; ; i++ {
				for what, migrate := range map[string]func() error{
					"Ledger.Migrate": func() error { return s.marks.Migrate(t.Context(), r.DB) },
					"Ledger.Check":   func() error { return s.marks.Check(t.Context(), r.DB) },
					"Outbox.Check":   func() error { return box.Check(t.Context(), r.DB) },
					"Outbox":         func() error { return box.Migrate(t.Context(), r.DB) },
					"Store":          func() error { return store.Migrate(t.Context()) },
				} {
					if err := migrate(); err != nil {
						assert.NotContains(t, err.Error(), "drop it", what)
						assert.NotContains(t, err.Error(), "not a table of", what)
						assert.Contains(t, err.Error(), told, what)
					} else {
						assert.Contains(t, what, "Outbox", "%d", i) // it looks at the version alone
					}
				}
				if i == len(steps) {
					break
				}
				r.grant(t, steps[i].rights, steps[i].table)
			}
			r.grant(t, "SELECT", s.table)
			assert.NoError(t, s.marks.Migrate(t.Context(), r.DB))
		})
	}
}

var outboxDialects = map[sqladapter.Dialect]outbox.Dialect{sqladapter.Postgres: outbox.Postgres,
	sqladapter.MySQL: outbox.MySQL}
