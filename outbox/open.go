package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/onceward/onceward/internal/sqlerr"
)

const setOpen, releaseOpen = `SAVEPOINT onceward_open`, `RELEASE SAVEPOINT onceward_open`

// checkOpen refuses a connection on which no transaction was begun: the message would be published
// whatever becomes of the effect. It does not check a *sql.Tx. Two round trips, one with SQLite.
//
// PostgreSQL refuses a savepoint outside of a transaction. MySQL accepts it, and drops it before it
// can be released. In SQLite a savepoint begins a transaction, so checkOpen sends BEGIN, which
// SQLite refuses inside of one.
func (o *Outbox) checkOpen(ctx context.Context, tx Tx) error {
	if !sqlerr.IsConn(tx) {
		return nil
	}
	notOpen := inputError("tx",
		"is a connection on which no transaction was begun; pass the transaction that holds the effect")
	if o.dialect.kind == SQLite {
		_, err := tx.ExecContext(ctx, `BEGIN`)
		switch {
		case err == nil:
			// ends the transaction that BEGIN has begun
			if _, err := tx.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); err != nil {
				return fmt.Errorf("outbox: insert: %w", err)
			}
			return notOpen
		case strings.Contains(err.Error(), "within a transaction"): // it has no number
			return nil
		}
		return fmt.Errorf("outbox: insert: %w", err)
	}
	_, err := tx.ExecContext(ctx, setOpen)
	if err == nil {
		_, err = tx.ExecContext(ctx, releaseOpen)
	}
	switch {
	case err == nil:
		return nil
	case sqlerr.NoTransaction(err), sqlerr.NoSavepoint(err):
		return notOpen
	}
	return fmt.Errorf("outbox: insert: %w", err)
}
