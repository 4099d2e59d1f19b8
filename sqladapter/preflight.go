package sqladapter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward/internal/sqlname"
)

// PreflightConfig says what [Preflight] looks at. Dialect is required.
type PreflightConfig struct {
	// Dialect of the database. No default.
	Dialect Dialect
	// Schema that holds the tables. Default: the connection's own.
	Schema string
	// Tables whose keys tell duplicates: of marks, a store, a fence, or your own. Default:
	// none, only the server and the connection are looked at.
	Tables []string
}

// Preflight looks at the settings of the server and of a connection of db, and at the tables,
// and returns what may lose records or take duplicates for new: worst first, empty when all is
// well. It needs no right but to read, and writes nothing that lasts: MySQL's clientFoundRows
// shows on a temporary table, SQLite's _txlock in a transaction that is rolled back.
//
// It sees what a fresh session has. Not seen are what a pool in between (PgBouncer) does, disks
// that lie about what they have written, and standbys that lag. The error says that something
// could not be asked; the findings are then what was seen before. Some ten round trips.
func Preflight(ctx context.Context, db *sql.DB, cfg PreflightConfig) ([]Finding, error) {
	check, err := preflights(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqladapter: preflight: %w", err)
	}
	p := &preflight{conn: conn, db: db, cfg: cfg}
	err = check(ctx, p)
	if closed := conn.Close(); err == nil {
		err = closed
	}
	for i := range p.found {
		p.found[i].Server = p.server
	}
	slices.SortStableFunc(p.found, func(a, b Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
	if err != nil {
		return p.found, fmt.Errorf("sqladapter: preflight: %w", err)
	}
	return p.found, nil
}

func preflights(ctx context.Context, db *sql.DB,
	cfg PreflightConfig) (func(context.Context, *preflight) error, error) {
	switch {
	case ctx == nil:
		return nil, inputError("ctx", "is nil")
	case db == nil:
		return nil, inputError("db", "is nil")
	case cfg.Schema != "" && !sqlname.Valid(cfg.Schema):
		return nil, inputError("Schema", sqlname.Form)
	}
	for _, table := range cfg.Tables {
		if !sqlname.Valid(table) {
			return nil, inputError("Tables", sqlname.Form)
		}
	}
	switch cfg.Dialect {
	case Postgres:
		return preflightPostgres, nil
	case MySQL:
		return preflightMySQL, nil
	case SQLite:
		return preflightSQLite, nil
	}
	return nil, inputError("Dialect", "must be Postgres, MySQL or SQLite")
}

// preflight is one under way, on one session.
type preflight struct {
	conn   *sql.Conn
	db     *sql.DB
	cfg    PreflightConfig
	server string
	found  []Finding
}

func (p *preflight) add(found ...Finding) { p.found = append(p.found, found...) }

// settings reads names and values.
func (p *preflight) settings(ctx context.Context, query string) (map[string]string, error) {
	rows, err := p.conn.QueryContext(ctx, query)
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

// shape is what a table is like, whatever the database.
type shape struct {
	missing, unlogged bool
	engine            string // of MySQL
	unique, plain     int    // indexes
	aged              bool   // it has a column that retention goes by
	keys              []keyColumn
}

// keyColumn is a column of text in a unique index.
type keyColumn struct {
	name, collation string
	severity        Severity
}

// agedBy are the columns that retention goes by.
const agedBy = `'stamp', 'created_at', 'expires'`

// judge says what the shape of a table means.
func (p *preflight) judge(table string, s shape) {
	if s.missing {
		p.add(finding(CodeNoTable, "there is no table %s", table))
		return
	}
	if s.unlogged {
		p.add(finding(CodeUnlogged, "table %s is unlogged", table))
	}
	if s.engine != "" && !strings.EqualFold(s.engine, "InnoDB") {
		p.add(finding(CodeEngine, "table %s has the engine %s", table, s.engine))
	}
	if s.unique == 0 {
		p.add(finding(CodeNoUniqueIndex,
			"table %s has no primary key and no unique index that is valid", table))
	}
	if s.aged && s.plain == 0 {
		p.add(finding(CodeNoRetentionIndex, "table %s has no index beside its key", table))
	}
	for _, k := range s.keys {
		p.add(finding(CodeCollation, "column %s of table %s has the collation %s", k.name,
			table, k.collation).as(k.severity))
	}
}

// tables looks at each.
func (p *preflight) tables(ctx context.Context,
	look func(ctx context.Context, table string) (shape, error)) error {
	for _, table := range p.cfg.Tables {
		s, err := look(ctx, table)
		if err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		p.judge(table, s)
	}
	return nil
}

// keysOf reads name and collation of columns; judge says what is wrong with one, or not.
func (p *preflight) keysOf(ctx context.Context, judge func(collation string) (Severity, bool),
	query string, args ...any) (keys []keyColumn, err error) {
	rows, err := p.conn.QueryContext(ctx, query, args...)
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
func (p *preflight) scan(ctx context.Context, query string, args []any, dest ...any) (bool, error) {
	err := p.conn.QueryRowContext(ctx, query, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
