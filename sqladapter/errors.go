package sqladapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
)

// unlearnt returns the Mark of a statement that failed. A lock timeout means that another
// transaction holds the key and has not ended.
func unlearnt(err error) Mark {
	if sqlerr.Waited(err) {
		return Mark{Outcome: dedup.InFlight,
			Err: fmt.Errorf("sqladapter: %w: %w", dedup.ErrInFlight, err)}
	}
	return Mark{Outcome: dedup.Unknown, Err: fmt.Errorf("sqladapter: %w", err)}
}

// unlearnt is that of a statement on the tables of m.
func (m *Ledger) unlearnt(err error) Mark { return unlearnt(m.notMigrated(err)) }

// notMigrated names a table of m that does not exist.
func (m *Ledger) notMigrated(err error) error {
	err = sqlerr.NotMigrated(err, m.table.all()...)
	if p := m.previous; p != nil {
		err = p.notMigrated(err)
	}
	return err
}

// Retryable reports whether the whole transaction, from BEGIN, may succeed when it is run again. It
// is true after a serialization failure, a deadlock, a lock timeout, SQLite's busy and locked, and
// a lost connection, even one lost during COMMIT. It is also true when the server is starting or
// stopping, when it takes no writes any more (run the transaction on another connection), and when
// the table of marks was rotated. Never repeat the failed statement alone.
//
// Ask it about the errors of this package, of statements and of COMMIT. An effect's own io.EOF or
// net.Error reads like a lost connection: [Ledger.Do], [Ledger.DoBatch], [Fence.Do] and a [Runner]
// ask the database whether it is one; if not, Retryable is false of the error that they return. For
// an effect in your own transaction it cannot tell.
//
// It is true for a lost COMMIT because the repeated transaction meets its own mark; this is right
// only when MarkTx and the effect are both in it. It is false for bad input, a mismatch, an ended
// context and everything it does not know. It needs no driver: it reads the errors of pgx and
// lib/pq, go-sql-driver's MySQL, modernc's SQLite and go-mssqldb by what they have in common; for
// another driver, ask the driver.
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		isNotOurs(err):
		return false
	case errors.Is(err, dedup.ErrUnknown), errors.Is(err, dedup.ErrInFlight),
		errors.Is(err, errRolledBack), errors.Is(err, errSealed), errors.Is(err, errOldSnapshot):
		return true
	}
	return sqlerr.Transient(err)
}
