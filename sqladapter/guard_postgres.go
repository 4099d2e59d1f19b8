package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
)

// PostgreSQL never ends a transaction by itself, but an effect can: with COMMIT or ROLLBACK as
// text. *sql.Tx does not notice. The effect's writes after that commit statement by statement, and
// the COMMIT that Do sends at the end succeeds, with a warning, although no transaction is open.

// writtenHere is true of a row that the present transaction has written, or a savepoint in it. xmin
// is the low half of the writing transaction's number, and a savepoint's number is higher than its
// transaction's. The number of a transaction that has written nothing is NULL.
const writtenHere = `((xmin::text::bigint - txid_current_if_assigned()) & 4294967295) < 2147483648`

// errEffectEnded is permanent: the effect may have written after it ended the transaction, and
// would write that again.
var errEffectEnded = errors.New(
	"the effect has ended its transaction, with a COMMIT or ROLLBACK of its own. Its writes until " +
		"then are committed or rolled back together with the record; later ones may be committed without one")

func effectEnded(err error) error {
	err = fmt.Errorf("%w: %w", errNotSent, errors.Join(errEffectEnded, err))
	return dedup.Permanent(err)
}

// postgresTx is a transaction that commits only if it has itself written the row of the record.
type postgresTx struct {
	*sql.Tx
	// written counts the rows of this transaction's record, which must be 1. It is zero where no
	// such check is needed.
	written statement
}

// Commit first checks for the row, at the cost of one round trip.
func (t *postgresTx) Commit(ctx context.Context) error {
	if t.written.text == "" {
		return t.Tx.Commit()
	}
	var n int64
	err := scanRow(ctx, t.Tx, t.written, &n)
	switch {
	case err != nil: // also when the transaction is aborted because the effect has ignored an error
		return fmt.Errorf("%w: %w", errNotSent, err)
	case n == 0:
		return effectEnded(nil)
	}
	return t.Tx.Commit()
}

// Rollback also ends a transaction that the effect has begun after ending this one.
func (t *postgresTx) Rollback(context.Context) error { return t.Tx.Rollback() }

// watch makes the transaction's Commit check for the row that it has just written. Transactions of
// other databases, and of pgx, have a savepoint for that.
func watch(tx transaction, written func() statement) {
	if t, ok := tx.(*postgresTx); ok {
		t.written = written()
	}
}

// unwatch is for a caller that has checked in another way that the transaction is the same.
func unwatch(tx transaction) { watch(tx, func() statement { return statement{} }) }

// whetherReleased classifies the error of RELEASE SAVEPOINT and COMMIT sent in one round trip: when
// the release fails the server does not execute COMMIT.
func whetherReleased(err error) error {
	switch {
	case sqlerr.Ended(err):
		return effectEnded(err)
	case sqlerr.Aborted(err):
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return err
}

// checkPostgres refuses a *sql.Conn, or a wrapper of one, on which no transaction was begun: the
// server refuses SAVEPOINT there. It does not check a *sql.Tx. Two round trips.
func checkPostgres(ctx context.Context, tx Tx) error {
	if !sqlerr.IsConn(tx) {
		return nil
	}
	err := run(ctx, tx, setOpen)
	if sqlerr.NoTransaction(err) {
		return errNotOpen
	}
	if err != nil {
		return err
	}
	return run(ctx, tx, releaseOpen)
}
