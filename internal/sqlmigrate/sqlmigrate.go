// Package sqlmigrate brings the tables of one component to a version, up or down, with SQL files
// that the component embeds.
//
// The files lie in a directory per dialect, two for each version, counted from 1 without a gap:
//
//	postgres/0001_marks.up.sql    postgres/0001_marks.down.sql
//	postgres/0002_origin.up.sql   postgres/0002_origin.down.sql
//
// A statement ends with a semicolon at the end of a line. A semicolon elsewhere must not end its
// line: put a comment after it. Names are never written out, because users choose them:
//
//	{{table}}            the table, quoted, with its schema when there is one
//	{{table:_results}}   another table, or an index to drop: the table's name with a suffix
//	{{bare}}, {{bare:_results}}   the same without the schema
//	{{index:_stamp}}     an index to create, as the engine wants it; SQLite wants a schema, and
//	                     {{bare}} after ON
//
// A version is recorded in the table onceward_migrations, next to the tables themselves. It is
// applied one statement at a time, in one transaction with its record, except in MySQL. MySQL
// commits each DDL statement by itself, so there a version may be cut off in the middle and is then
// begun again: its statements must be harmless when repeated (IF NOT EXISTS, IF EXISTS). MySQL has
// no such words for columns and indexes: its error that they already exist, or do not exist any
// more, counts as done.
//
// A version that changes an index of a table in use is applied online: see online.go. A statement
// of PostgreSQL under the comment "-- Only since server_version_num 140000." is left out on an
// older server.
package sqlmigrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlname"
)

// Table is where versions are recorded: component, table_name, version.
const Table = "onceward_migrations"

// Dialect is also the name of the directory that holds its files.
type Dialect string

// The dialects.
const (
	Postgres  Dialect = "postgres"
	MySQL     Dialect = "mysql" // MariaDB too
	SQLite    Dialect = "sqlite"
	SQLServer Dialect = "sqlserver"
)

// Config says to which component the tables belong and what they are called.
type Config struct {
	// Files has the directory of the dialect at its root.
	Files fs.FS
	// Component separates the versions of one package's tables from another's: marks, outbox.
	Component string
	Dialect   Dialect
	// Schema of the tables, which must exist. If it is empty, the schema of the connection is used.
	Schema string
	// Table is what {{table}} stands for.
	Table string
	// Texts are further placeholders, {{name}} in lower case, and the SQL that replaces them as it
	// is.
	Texts map[string]string
	// Verify, if set, runs after the statements of each version on the way up and before that is
	// recorded, in the same transaction. Its error undoes the version, except in MySQL, which has
	// committed the statements; but the version is not recorded there either. Verify must refuse a
	// foreign table of that name at version 1, or it is dropped on the way down.
	Verify func(ctx context.Context, tx *sql.Tx, version int) error
}

// Migrations are the versions of one component's tables, with names put in. It is safe for
// concurrent use.
type Migrations struct {
	component, table string
	engine           *engine
	versions         []version
	verify           func(ctx context.Context, tx *sql.Tx, version int) error
}

// version n is versions[n-1].
type version struct {
	name     string
	up, down []string // statements, each with its semicolon
}

// New reads the files and puts the names in. It does not touch the database.
func New(cfg Config) (*Migrations, error) {
	engine, err := newEngine(cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlmigrate: %w", err)
	}
	versions, err := load(cfg.Files, newNames(cfg))
	if err != nil {
		return nil, fmt.Errorf("sqlmigrate: %s of %s: %w", cfg.Dialect, cfg.Component, err)
	}
	return &Migrations{
		component: cfg.Component, table: cfg.Table, engine: engine, versions: versions,
		verify: cfg.Verify,
	}, nil
}

// check refuses every invalid name, because from here on names are put into statements.
func (c *Config) check() error {
	switch {
	case c.Files == nil:
		return errors.New("field Files is nil")
	case !sqlname.Valid(c.Component):
		return errors.New("field Component " + sqlname.Form)
	case !sqlname.Valid(c.Table):
		return errors.New("field Table " + sqlname.Form)
	case c.Table == Table:
		return errors.New("field Table is " + Table + ", where versions are recorded")
	case c.Schema != "" && !sqlname.Valid(c.Schema):
		return errors.New("field Schema " + sqlname.Form)
	}
	return nil
}

// Newest is the version that this program needs.
func (m *Migrations) Newest() int { return len(m.versions) }
