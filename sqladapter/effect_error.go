package sqladapter

import (
	"context"
	"errors"

	"github.com/onceward/onceward/internal/sqlerr"
)

// notOurConnection is the error of an effect that reads like a lost connection, while the
// connection of its transaction answers: the io.EOF of a payload that was cut off, or the net.Error
// of a call to another system. To run such an effect again would only repeat the call.
type notOurConnection struct{ error }

// Unwrap returns the effect's own error.
func (e *notOurConnection) Unwrap() error { return e.error }

// ofEffect is the error of an effect, as transact is to see it. A code of a database is believed:
// with PostgreSQL, a serialization failure that the effect returns was its transaction's. An error
// that only reads like a lost connection is believed when the transaction's connection is really
// lost, which takes one round trip to find out.
func ofEffect(ctx context.Context, tx Tx, err error) error {
	if !sqlerr.Transient(err) || sqlerr.Coded(err) || !repeatable(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commitGrace)
	defer cancel()
	if answers(ctx, tx) {
		return &notOurConnection{err}
	}
	return err
}

// answers reports whether the server of a transaction answers, be it with an error: one of a
// transaction that is aborted, or has ended.
func answers(ctx context.Context, tx Tx) bool {
	err := run(ctx, tx, `SELECT 1`)
	return err == nil || ctx.Err() == nil && (sqlerr.Coded(err) || !sqlerr.Lost(err))
}

// isNotOurs reports that err is an effect's own, and no reason to begin again.
func isNotOurs(err error) bool {
	var own *notOurConnection
	return errors.As(err, &own)
}
