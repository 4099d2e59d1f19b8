// Package native is the contract between package sqladapter and transactions that are not of
// database/sql. Users of pgx need package sqladapter/pgxv5 instead, which implements it.
package native

import (
	"context"
	"database/sql"
)

// Tx runs a statement in a transaction.
type Tx interface {
	// QueryContext is that of *sql.Tx, so that a Tx is also a sqladapter.Tx. It is never called.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	// QueryRows runs a statement and returns its rows, if it has any. They are read and closed
	// before the next call.
	QueryRows(ctx context.Context, query string, args ...any) (Rows, error)
}

// Arrays is a [Tx] of PostgreSQL that sends arrays in binary form instead of as text.
type Arrays interface {
	Tx
	// TakesArrays says that QueryRows takes a [][16]byte for a parameter of type uuid[], and a
	// [][]byte for bytea[], in which nil is NULL. It is never called.
	TakesArrays()
}

// Rows is what a [Tx] returns; *sql.Rows has these methods.
type Rows interface {
	// Next goes to the next row. It is false after the last one, and after an error.
	Next() bool
	// Scan reads the columns of the row.
	Scan(dest ...any) error
	// Err returns the error that made Next return false early.
	Err() error
	// Close may be called again.
	Close() error
}

// Transaction is a [Tx] that sqladapter.Native ends.
type Transaction interface {
	Tx
	// Commit may return early when its context ends.
	Commit(ctx context.Context) error
	// Rollback is always called last, also after Commit, where it must do nothing. Its context does
	// not end with the caller's, but some seconds later at the latest.
	Rollback(ctx context.Context) error
}
