package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// SQLite ends a transaction by itself after some errors: an INSERT that is interrupted because its
// context has ended, a full disk, an I/O error, no memory, ON CONFLICT ROLLBACK. *sql.Tx does not
// know, and each next statement is committed by itself (sqlite.org/lang_transaction.html, section
// 3).
const (
	// Inside of a transaction SQLite refuses BEGIN. Outside, BEGIN begins a transaction.
	beginAnother = `BEGIN`
	// A transaction of beginAnother, or of a SAVEPOINT of the effect, has no such savepoint.
	setOwn, releaseOwn = `SAVEPOINT onceward_own`, `RELEASE onceward_own`
)

// After errEndedEarly nothing is run again: the effect may have continued and written, and would
// write again.
var errEndedEarly = errors.New(
	"the transaction has ended before its effect, and later writes of the effect are committed without " +
		"a record. SQLite ends it after an error of a statement: return the first error, and open the " +
		"database with OpenSQLite. COMMIT or ROLLBACK of the effect ends it, too")

// withinAnother reports that BEGIN was refused because a transaction is open. No driver has a
// number for it.
func withinAnother(err error) bool {
	return err != nil && strings.Contains(err.Error(), "within a transaction")
}

// endedEarly reports that a savepoint of ours is gone, and with it the transaction.
func endedEarly(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such savepoint: onceward_")
}

// checkSQLite refuses a transaction that is not open. To send BEGIN is the only way to ask.
func checkSQLite(ctx context.Context, tx Tx) error {
	err := run(ctx, tx, beginAnother)
	if withinAnother(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// ends the transaction that BEGIN has begun
	if err := run(context.WithoutCancel(ctx), tx, `ROLLBACK`); err != nil {
		return err
	}
	return errNotOpen
}

// run runs a statement that returns no rows on a Tx without ExecContext.
func run(ctx context.Context, tx Tx, text string) error {
	return runStatement(ctx, tx, statement{text: text})
}

func runStatement(ctx context.Context, tx Tx, s statement) error {
	rows, err := query(ctx, tx, s)
	if err != nil {
		return err
	}
	for rows.Next() { // there is no row, but some drivers run the statement only here
	}
	return errors.Join(rows.Err(), rows.Close())
}

// sqliteTx is a transaction that sends no COMMIT when SQLite has ended it.
type sqliteTx struct{ *sql.Tx }

func beginSQLite(ctx context.Context, tx *sql.Tx) (transaction, error) {
	if _, err := tx.ExecContext(ctx, setOwn); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return sqliteTx{tx}, nil
}

// Commit does not send COMMIT when the savepoint is gone.
func (t sqliteTx) Commit(ctx context.Context) error {
	_, err := t.ExecContext(ctx, releaseOwn)
	if endedEarly(err) {
		return fmt.Errorf("%w: %w: %w", errNotSent, errEndedEarly, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return t.Tx.Commit()
}

// Rollback also ends a transaction that the effect has begun after ending this one.
func (t sqliteTx) Rollback(context.Context) error { return t.Tx.Rollback() }
