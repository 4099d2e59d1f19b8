package sqladapter

import (
	"context"
	"errors"

	"github.com/onceward/onceward/internal/sqlerr"
)

// notOurConnection is the error of an effect that reads like a lost connection although the
// connection of its transaction answers: the io.EOF of a payload that was cut off, or the net.Error
// of a call to another system. To run such an effect again would only repeat the call.
type notOurConnection struct{ error }

// Unwrap returns the effect's own error.
func (e *notOurConnection) Unwrap() error { return e.error }

// ofEffect returns the error of an effect as transact should see it. An error with a database's
// code is believed: with PostgreSQL a serialization failure that the effect returns is from its
// transaction. An error that only reads like a lost connection is believed when the transaction's
// connection is really lost, which takes one round trip to find out.
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

// answers reports whether the server of a transaction answers at all. An error counts as an answer:
// the transaction may be aborted, or have ended.
func answers(ctx context.Context, tx Tx) bool {
	err := run(ctx, tx, `SELECT 1`)
	return err == nil || ctx.Err() == nil && (sqlerr.Coded(err) || !sqlerr.Lost(err))
}

// isNotOurs reports that err is an effect's own, and no reason to begin again.
func isNotOurs(err error) bool {
	var own *notOurConnection
	return errors.As(err, &own)
}
