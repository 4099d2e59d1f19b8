package sqladapter

import (
	"context"
	"database/sql"
	_ "embed" // the schema of each dialect
	"fmt"
	"strings"

	"github.com/onceward/onceward/dedup"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

// Schema returns the DDL that [Marks.Migrate] runs, for those whose own tool does it.
// Every statement is idempotent and ends with a semicolon at the end of a line.
func (m *Marks) Schema() string {
	if m.ready() != nil {
		return ""
	}
	return m.dialect.ddl
}

// Migrate creates the table and its index unless they exist, in one transaction, and
// checks that the table is readable as marks. Several processes may call it at once. It
// changes nothing in a table that exists, and does not create Config.Schema.
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
	for _, statement := range m.migration() {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("sqladapter: migrate: %w", err)
		}
	}
	if _, err := m.load(ctx, tx, []entry{{id: dedup.ID{}}}); err != nil {
		return fmt.Errorf("sqladapter: migrate: table %s is not a table of marks: %w", m.table.full, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	return nil
}

// migration is one statement each: prepared statements hold no more than one. The lock
// comes first, because CREATE TABLE IF NOT EXISTS fails in PostgreSQL when two sessions
// find the table missing at the same time.
func (m *Marks) migration() []string {
	var statements []string
	if m.dialect.lock != "" {
		statements = append(statements, m.dialect.lock)
	}
	for _, s := range strings.SplitAfter(m.dialect.ddl, ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}
