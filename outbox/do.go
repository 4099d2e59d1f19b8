package outbox

import (
	"context"
)

// Ledger records a key in the transaction of its effect. *sqladapter.Ledger is one, with *sql.DB
// for DB and *sql.Tx for T.
type Ledger[DB any, T Tx, Record, Option any] interface {
	// Do begins a transaction of db, records key in it, calls effect if the record is new, and
	// commits. If key was recorded before, it does not call effect, and returns a Record that says
	// so and a nil error. It may run the whole transaction again after an error.
	Do(ctx context.Context, db DB, key string, effect func(ctx context.Context, tx T) error,
		opts ...Option) (Record, error)
}

// Do runs effect once for key, and publishes the messages that effect returns. The ledger's record
// of the key, the writes of effect and the messages are one transaction of db: all of them are
// committed, or none is. Then Do wakes the relays, as [Outbox.Notify] does.
//
// It returns what ledger.Do returns. For a duplicate it does not call effect, inserts no message,
// and returns the ledger's Record of the key. An error means: do not acknowledge, call Do again.
// That is also safe after a COMMIT whose answer was lost, because the next call finds the record.
// When the outbox refuses a message the effect is rolled back: the error is an [*InputError].
//
// effect must write through tx, and neither commit tx nor roll it back. The ledger may run it
// several times, one after the other; only the messages of the committed transaction exist. It may
// return no message.
//
// db and tx are those of the ledger: *sql.DB and *sql.Tx for *sqladapter.Ledger, *pgxpool.Pool and
// *pgxv5.Tx for pgxv5.Ledger of module sqladapter/pgxv5. For another client write the method Do on
// a type of your own, whose T has an ExecContext. A nil box, ledger or effect is an [*InputError],
// before any statement. Concurrent calls are safe. It takes the round trips of ledger.Do and of
// [Outbox.InsertTx].
func Do[DB any, T Tx, Record, Option any](
	ctx context.Context, box *Outbox, ledger Ledger[DB, T, Record, Option], db DB, key string,
	effect func(ctx context.Context, tx T) ([]Message, error), opts ...Option,
) (Record, error) {
	var none Record
	switch err := box.ready(); {
	case err != nil:
		return none, err
	case isNil(ledger):
		return none, inputError("ledger", "is nil")
	case effect == nil:
		return none, inputError("effect", "is nil")
	}
	inserted := false
	record, err := ledger.Do(ctx, db, key, func(ctx context.Context, tx T) error {
		messages, err := effect(ctx, tx)
		if err != nil {
			return err
		}
		inserted = inserted || len(messages) > 0
		return box.InsertTx(ctx, tx, messages...)
	}, opts...)
	if inserted { // after an error, too: its COMMIT may have succeeded
		box.Notify()
	}
	return record, err
}
