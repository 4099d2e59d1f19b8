package sqlmigrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/internal/sqlerr"
)

// Queryer is *sql.DB, *sql.Conn or *sql.Tx.
type Queryer interface {
	// QueryRowContext is that of *sql.DB.
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// LevelError says that the tables have another version than the program needs.
type LevelError struct {
	Component, Table string
	Has, Needs       int
}

// Error says what to do: migrate, or run a newer program.
func (e *LevelError) Error() string {
	if e.Has < e.Needs {
		return fmt.Sprintf("table %s needs a migration: %s has version %d, this program needs %d",
			e.Table, e.Component, e.Has, e.Needs)
	}
	return fmt.Sprintf("table %s is newer than this program: %s has version %d, this program knows %d", e.Table, e.Component, e.Has, e.Needs)
}

// beginner is a pool or a connection, on which a transaction can be begun.
type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Version returns the version that is recorded, zero for none. It changes nothing and needs only
// the right to read. Two round trips, and two more on MySQL for a transaction.
func (m *Migrations) Version(ctx context.Context, db Queryer) (int, error) {
	if pool, ok := db.(beginner); ok && m.engine.transact {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return 0, m.unread(err)
		}
		defer func() { _ = tx.Rollback() }()
		db = tx
	}
	return m.version(ctx, db)
}

func (m *Migrations) version(ctx context.Context, db Queryer) (int, error) {
	var there, found int
	err := db.QueryRowContext(ctx, m.engine.exists).Scan(&there)
	if err == nil {
		err = db.QueryRowContext(ctx, m.engine.read).Scan(&found)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, m.unread(sqlerr.NeedsRight(err, "SELECT on "+m.engine.versions))
	}
	return found, nil
}

// Check returns a [*LevelError] unless the tables have the newest version.
func (m *Migrations) Check(ctx context.Context, db Queryer) error {
	has, err := m.Version(ctx, db)
	if err == nil && has != m.Newest() {
		err = &LevelError{Component: m.component, Table: m.table, Has: has, Needs: m.Newest()}
	}
	return err
}

// unread makes the error for callers that only read, because their error must not say that they
// migrate.
func (m *Migrations) unread(err error) error {
	return fmt.Errorf("read the version of table %s: %w", m.table, err)
}

func (m *Migrations) wrap(err error) error {
	return fmt.Errorf("migrate %s of %s: %w", m.table, m.component, err)
}
