// Package sqlpreflight checks a database, a pool and its tables for settings that lose records or
// let a duplicate pass for a new message. Package preflight has the findings.
//
//	findings, err := sqlpreflight.Run(ctx, db, sqlpreflight.Config{Dialect: sqladapter.Postgres})
package sqlpreflight

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// Config says what [Run] looks at. Dialect is required.
type Config struct {
	// Dialect of the database: Postgres, MySQL or SQLite of package sqladapter. No default.
	Dialect dialect.Dialect
	// Schema that holds the tables. Default: the connection's own.
	Schema string
	// Tables whose keys detect duplicates: of marks, a store, a fence, or your own. Default: none,
	// only the server and the connection are checked.
	Tables []string
}

// Run checks the settings of the server and of a connection of db, and the tables. It returns what
// may lose records or let duplicates pass for new messages: worst first, empty when all is well. It
// needs only the right to read, and writes nothing that lasts: it finds MySQL's clientFoundRows
// with a temporary table, and SQLite's _txlock in a transaction that it rolls back.
//
// It sees the settings of a fresh session. It cannot see what a pooler in between (PgBouncer) does,
// nor disks that report writes they have not made, nor standbys that lag. An error says that a
// query failed; the findings are then those made before it. Some ten round trips.
func Run(ctx context.Context, db *sql.DB,
	cfg Config) ([]preflight.Finding, error) {
	if err := cfg.check(ctx, db); err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlpreflight: %w", err)
	}
	in := &inspection{Report: advice.Report{Table: advices}, conn: conn, db: db, cfg: cfg}
	err = in.look(ctx)
	if closed := conn.Close(); err == nil {
		err = closed
	}
	advice.Sort(in.Findings)
	if err != nil {
		return in.Findings, fmt.Errorf("sqlpreflight: %w", err)
	}
	return in.Findings, nil
}

func (cfg *Config) check(ctx context.Context, db *sql.DB) error {
	switch {
	case ctx == nil:
		return dialect.InputError("ctx", "is nil")
	case db == nil:
		return dialect.InputError("db", "is nil")
	case cfg.Schema != "" && !sqlname.Valid(cfg.Schema):
		return dialect.InputError("Schema", sqlname.Form)
	case cfg.Dialect < dialect.Postgres || cfg.Dialect > dialect.MySQL:
		return dialect.InputError("Dialect", "must be dialect.Postgres, MySQL or SQLite")
	}
	for _, table := range cfg.Tables {
		if !sqlname.Valid(table) {
			return dialect.InputError("Tables", sqlname.Form)
		}
	}
	return nil
}

// inspection is a running preflight, on one session.
type inspection struct {
	advice.Report
	conn *sql.Conn
	db   *sql.DB
	cfg  Config
}

// look queries the server and reads the tables. It asks for the name of the server first, because
// all findings carry it.
func (in *inspection) look(ctx context.Context) error {
	switch in.cfg.Dialect {
	case dialect.Postgres:
		return in.postgres(ctx)
	case dialect.MySQL:
		return in.mysql(ctx)
	default:
		return in.sqlite(ctx)
	}
}

// settings reads names and values.
func (in *inspection) settings(ctx context.Context, query string) (map[string]string, error) {
	rows, err := in.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[strings.ToLower(name)] = value
	}
	return settings, rows.Err()
}

// shape describes a table of any database.
type shape struct {
	missing, unlogged bool
	engine            string // of MySQL
	unique, plain     int    // indexes
	aged              bool   // it has a column that retention uses
	keys              []keyColumn
}

// keyColumn is a column of text in a unique index.
type keyColumn struct {
	name, collation string
	severity        preflight.Severity
}

// agedBy are the columns that retention uses.
const agedBy = `'stamp', 'created_at', 'expires'`

// judge adds the findings about the shape of a table.
func (in *inspection) judge(table string, s shape) {
	if s.missing {
		in.Add(codeNoTable, "there is no table %s", table)
		return
	}
	if s.unlogged {
		in.Add(codeUnlogged, "table %s is unlogged", table)
	}
	if s.engine != "" && !strings.EqualFold(s.engine, "InnoDB") {
		in.Add(codeEngine, "table %s has the engine %s", table, s.engine)
	}
	if s.unique == 0 {
		in.Add(codeNoUniqueIndex,
			"table %s has no primary key and no unique index that is valid", table)
	}
	if s.aged && s.plain == 0 {
		in.Add(codeNoRetentionIndex, "table %s has no index other than its key", table)
	}
	for _, k := range s.keys {
		in.Add(codeCollation, "column %s of table %s has the collation %s", k.name, table,
			k.collation).Severity = k.severity
	}
}

// tables checks each table.
func (in *inspection) tables(ctx context.Context,
	look func(ctx context.Context, table string) (shape, error)) error {
	for _, table := range in.cfg.Tables {
		s, err := look(ctx, table)
		if err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		in.judge(table, s)
	}
	return nil
}

// keysOf reads name and collation of columns; judge reports whether a collation is bad, and how
// severe that is.
func (in *inspection) keysOf(ctx context.Context,
	judge func(collation string) (preflight.Severity, bool), query string,
	args ...any) (keys []keyColumn, err error) {
	rows, err := in.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k keyColumn
		if err := rows.Scan(&k.name, &k.collation); err != nil {
			return nil, err
		}
		var bad bool
		if k.severity, bad = judge(k.collation); bad {
			keys = append(keys, k)
		}
	}
	return keys, rows.Err()
}

// scan reads one row, and reports whether there is one.
func (in *inspection) scan(ctx context.Context, query string, args []any,
	dest ...any) (bool, error) {
	err := in.conn.QueryRowContext(ctx, query, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
