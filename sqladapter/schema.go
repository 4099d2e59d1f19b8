package sqladapter

import (
	"context"
	"database/sql"
	_ "embed" // the schema of each dialect
	"fmt"
	"strings"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

//go:embed schema/mysql.sql
var mysqlSchema string

// Schema returns the DDL that [Marks.Migrate] runs, for those whose own tool does it.
// Every statement is idempotent and ends with a semicolon at the end of a line.
func (m *Marks) Schema() string {
	if m.ready() != nil {
		return ""
	}
	return m.dialect.ddl
}

// Migrate creates the tables and their index unless they exist, and puts Config.Window on
// record where it is longer than what is there, all in one transaction. Several processes
// may call it at once. A table of another form, an older one of this package's own included,
// is refused and left as it is. It does not create Config.Schema.
//
// With MySQL it refuses a connection that reports the rows it has found for those it has
// changed (clientFoundRows in the DSN), because a duplicate would look new, and a table whose
// engine has no transactions. Such a table exists then, and is empty.
func (m *Marks) Migrate(ctx context.Context, db *sql.DB) error {
	if err := m.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := m.migrate(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	return m.probe(ctx, db)
}

// Check tells whether the tables are there, in this package's form and with a window that is
// long enough, and refuses what [Marks.Migrate] refuses. It is for those who migrate with
// their own tool, to be called at start. It leaves nothing behind. Two round trips; three
// with PostgreSQL, with MySQL seven.
func (m *Marks) Check(ctx context.Context, db *sql.DB) error {
	if err := m.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	if err := m.checkKind(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	if err := m.checkForm(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	window, err := m.recordedWindow(ctx, db)
	if err != nil {
		return err
	}
	if window < m.window || window < recordedForever && m.window == 0 {
		return inputError("Window", fmt.Sprintf("is %v, and on record for %s is %v; call Migrate", m.window, m.table.full, window))
	}
	return m.probe(ctx, db)
}

// migrate reads a mark as soon as the tables are there for certain: what comes after
// would fail on another form, too, but not say why. The lock comes first, because CREATE
// TABLE IF NOT EXISTS fails in PostgreSQL when two sessions find the table missing at the
// same time.
func (m *Marks) migrate(ctx context.Context, tx *sql.Tx) error {
	if m.dialect.lock != "" {
		if _, err := tx.ExecContext(ctx, m.dialect.lock); err != nil {
			return fmt.Errorf("sqladapter: migrate: %w", err)
		}
	}
	if err := m.checkKind(ctx, tx); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	for i, text := range m.migration() {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("sqladapter: migrate: %w", err)
		}
		if i != tablesRead-1 {
			continue
		}
		if err := m.checkForm(ctx, tx); err != nil {
			return fmt.Errorf("sqladapter: migrate: %w", err)
		}
	}
	return nil
}

// tablesRead is how many of the first statements create what a mark is read from.
const tablesRead = 2

// checkForm reads a mark that cannot exist.
func (m *Marks) checkForm(ctx context.Context, tx Tx) error {
	if _, err := queryRows(ctx, tx, m.dialect.peek(make([]entry, 1)), scanLoaded); err != nil {
		return fmt.Errorf("table %s is not a table of marks, or one of an older form; drop it, or name another: %w", m.table.full, err)
	}
	return nil
}

// migration is one statement each: prepared statements hold no more than one.
func (m *Marks) migration() []string {
	var texts []string
	for _, s := range strings.SplitAfter(m.dialect.ddl, ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			texts = append(texts, s)
		}
	}
	return texts
}
