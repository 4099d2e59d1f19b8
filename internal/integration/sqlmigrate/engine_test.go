// Package sqlmigrate_test migrates tables up and down in real databases, with our own code and with
// the tools that users have.
package sqlmigrate_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

type engine struct {
	name    string
	dialect sqlmigrate.Dialect
	open    func(t *testing.T) *sql.DB
}

func engines() []engine {
	return []engine{
		{"postgres", sqlmigrate.Postgres, func(t *testing.T) *sql.DB {
			return open(t, "pgx", servertest.Postgres(t))
		}},
		{"mariadb", sqlmigrate.MySQL, func(t *testing.T) *sql.DB {
			return open(t, "mysql", servertest.MariaDB(t))
		}},
		{"mariadb/autocommit off", sqlmigrate.MySQL, func(t *testing.T) *sql.DB {
			return open(t, "mysql", servertest.MariaDB(t)+"&autocommit=0"+
				servertest.SessionVariable("isolation", "'REPEATABLE-READ'"))
		}},
		{"sqlite", sqlmigrate.SQLite, func(t *testing.T) *sql.DB {
			return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "n.db")+
				"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)")
		}},
	}
}

func forEach(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { test(t, e) })
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// store is a component on one database: a table, then a column and an index more, then a table
// next to it.
type store struct {
	t  *testing.T
	db *sql.DB
	*sqlmigrate.Migrations
	dialect       sqlmigrate.Dialect
	schema, table string
}

// newStore makes a schema of its own, so that the table of versions is its own, too.
func newStore(t *testing.T, e engine, edit ...func(*sqlmigrate.Config)) *store {
	t.Helper()
	s := &store{t: t, db: e.open(t), dialect: e.dialect, schema: "main", table: "Notes"}
	if e.dialect != sqlmigrate.SQLite {
		s.schema = servertest.Prefix(t)
		s.exec("CREATE SCHEMA " + s.schema)
		t.Cleanup(func() {
			cascade := ""
			if e.dialect == sqlmigrate.Postgres {
				cascade = " CASCADE"
			}
			s.exec("DROP SCHEMA " + s.schema + cascade)
		})
	}
	s.Migrations = s.component(edit...)
	return s
}

func (s *store) component(edit ...func(*sqlmigrate.Config)) *sqlmigrate.Migrations {
	s.t.Helper()
	cfg := sqlmigrate.Config{Files: files(s.dialect), Component: "notes", Dialect: s.dialect,
		Schema: s.schema, Table: s.table}
	for _, f := range edit {
		f(&cfg)
	}
	m, err := sqlmigrate.New(cfg)
	require.NoError(s.t, err)
	return m
}

func files(d sqlmigrate.Dialect) fstest.MapFS {
	drop := "DROP INDEX {{table:_author}};\n"
	if d == sqlmigrate.MySQL {
		drop = "DROP INDEX {{bare:_author}} ON {{table}};\n"
	}
	on := "{{table}}"
	if d == sqlmigrate.SQLite {
		on = "{{bare}}"
	}
	dir := fstest.MapFS{}
	for name, text := range map[string]string{
		"0001_notes.up.sql":    "-- One row per note.\nCREATE TABLE IF NOT EXISTS {{table}} (id int PRIMARY KEY);",
		"0001_notes.down.sql":  "DROP TABLE IF EXISTS {{table}};",
		"0002_author.up.sql":   "ALTER TABLE {{table}} ADD COLUMN author varchar(20);\nCREATE INDEX {{index:_author}} ON " + on + " (author);",
		"0002_author.down.sql": drop + "ALTER TABLE {{table}} DROP COLUMN author;",
		"0003_pages.up.sql":    "CREATE TABLE IF NOT EXISTS {{table:_pages}} (id int PRIMARY KEY);",
		"0003_pages.down.sql":  "DROP TABLE IF EXISTS {{table:_pages}};",
	} {
		dir[string(d)+"/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return dir
}

// exec also works in a cleanup, when the test's context has ended.
func (s *store) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(s.t.Context()), query)
	assert.NoError(s.t, err, query)
}

// name returns the quoted name of a table.
func (s *store) name(table string) string {
	mark := `"`
	if s.dialect == sqlmigrate.MySQL {
		mark = "`"
	}
	return strings.ReplaceAll(`"`+s.schema+`"."`+table+`"`, `"`, mark)
}

// has fails unless the version is recorded and the tables are those of that version.
func (s *store) has(want int) {
	s.t.Helper()
	got, err := s.Version(s.t.Context(), s.db)
	require.NoError(s.t, err)
	assert.Equal(s.t, want, got)
	for version, query := range map[int]string{
		1: "SELECT count(id) FROM " + s.name(s.table),
		2: "SELECT count(author) FROM " + s.name(s.table),
		3: "SELECT count(id) FROM " + s.name(s.table+"_pages"),
	} {
		var n int
		err := s.db.QueryRowContext(s.t.Context(),
			query).Scan(&n)
		assert.Equal(s.t, want >= version, err == nil, "at version %d: %s", want, query)
	}
}

func (s *store) up(to int) {
	s.t.Helper()
	require.NoError(s.t, s.Up(s.t.Context(), s.db, to), "up to %d", to)
	s.has(to)
}

func (s *store) down(to int) {
	s.t.Helper()
	require.NoError(s.t, s.Down(s.t.Context(), s.db, to), "down to %d", to)
	s.has(to)
}
