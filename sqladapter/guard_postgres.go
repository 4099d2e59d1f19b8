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
// text. *sql.Tx does not know. Its writes after that are committed statement by
// statement, and the COMMIT that Do sends at the end succeeds, with a warning, whatever there is to
// commit.

// writtenHere is true of a row that the present transaction has written, or a savepoint in it,
// whose number is higher: xmin is the low half of a transaction's number. Of a transaction that has
// written nothing the number is NULL.
const writtenHere = `((xmin::text::bigint - txid_current_if_assigned()) & 4294967295) < 2147483648`

// errEffectEnded is permanent: to run the effect again would write again what it has written after
// that.
var errEffectEnded = errors.New(
	"the effect has ended its transaction, with a COMMIT or ROLLBACK of its own. Its writes until " +
		"then are committed or rolled back together with the record; later ones may be committed without one")

func effectEnded(err error) error {
	err = fmt.Errorf("%w: %w", errNotSent, errors.Join(errEffectEnded, err))
	return dedup.Permanent(err)
}

// postgresTx is a transaction that is committed only while it has the row that was written before
// the effect.
type postgresTx struct {
	*sql.Tx
	// written counts the rows of this transaction's record, 1; zero for what needs no such look.
	written statement
}

// Commit asks first, with one round trip more.
func (t *postgresTx) Commit(ctx context.Context) error {
	if t.written.text == "" {
		return t.Tx.Commit()
	}
	var n int64
	err := scanRow(ctx, t.Tx, t.written, &n)
	switch {
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil:
		return effectEnded(err)
	case err != nil: // also that of an aborted transaction, whose effect has passed over an error
		return fmt.Errorf("%w: %w", errNotSent, err)
	case n == 0:
		return effectEnded(nil)
	}
	return t.Tx.Commit()
}

// Rollback also ends what the effect has begun instead of the transaction.
func (t *postgresTx) Rollback(context.Context) error { return t.Tx.Rollback() }

// watch has a transaction look at its end for the row that it has just written. Those of other
// databases, and of pgx, have a savepoint.
func watch(tx transaction, written func() statement) {
	if t, ok := tx.(*postgresTx); ok {
		t.written = written()
	}
}

// unwatch is for a caller that has found out in another way that the transaction is the same.
func unwatch(tx transaction) { watch(tx, func() statement { return statement{} }) }

// whetherReleased looks at the error of a COMMIT that has a savepoint released before it, in one
// round trip: where that fails COMMIT is not executed.
func whetherReleased(err error) error {
	switch {
	case sqlerr.Ended(err):
		return effectEnded(err)
	case sqlerr.Aborted(err):
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return err
}

// checkPostgres refuses a *sql.Conn, and what wraps one, on which no transaction was begun:
// SAVEPOINT is refused there. A *sql.Tx is not asked. Two round trips.
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
