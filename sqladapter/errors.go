package sqladapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
)

// unlearnt is the Mark of a statement that failed. A lock timeout means that another
// transaction holds the key and has not ended.
func unlearnt(err error) Mark {
	if sqlerr.Waited(err) {
		return Mark{Outcome: dedup.InFlight,
			Err: fmt.Errorf("sqladapter: %w: %w", dedup.ErrInFlight, err)}
	}
	return Mark{Outcome: dedup.Unknown, Err: fmt.Errorf("sqladapter: %w", err)}
}

// Retryable reports whether the whole transaction, from BEGIN, may succeed when it is
// run again. That is so after a serialization failure, a deadlock, a lock timeout, and SQLite's
// busy and locked; when a server is starting or stopping or takes no writes any more (run it on
// another connection). A lost connection is one of them, also when it was lost during COMMIT, and
// so is a table of marks that was rotated. Never repeat the failed statement alone.
//
// Ask it about the errors of this package, of statements and of COMMIT. An effect's own io.EOF or
// net.Error reads like a lost connection: [Ledger.Do], [Ledger.DoBatch], [Fence.Do] and a [Runner]
// ask the database whether it is one, and Retryable is false of what they return then. It cannot
// tell for an effect of your own transaction.
//
// It answers true for a lost COMMIT because the repeated transaction meets its own mark;
// that holds only when MarkTx and the effect are in it. It is false for bad input, a
// mismatch, an ended context and everything it does not know. It needs no driver: it
// reads the errors of pgx and lib/pq, go-sql-driver's MySQL, modernc's SQLite and go-mssqldb
// by what they have in common; for another driver, ask the driver.
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
