package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/native"
)

const (
	// maxTries bounds how often a transaction is run.
	maxTries = 5
	// commitGrace is how much longer a COMMIT or a ROLLBACK may take after its caller was canceled.
	commitGrace = 5 * time.Second
)

// again spreads the next tries of transactions that deadlocked or were refused as not serializable.
// Longer waits, such as for a server that starts, are up to the caller's own retries.
var again = backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}

var errNoCommitReply = fmt.Errorf("%w: COMMIT was not answered within %v of the end of the context",
	dedup.ErrUnknown, commitGrace)

// transaction is one that Do begins and ends. Rollback is always called, last.
type transaction interface {
	Tx
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// beginner begins a transaction. before is the error of the last try, or nil.
type beginner func(ctx context.Context, before error) (transaction, error)

// sqlTx is a transaction of database/sql, which takes the context when it begins.
type sqlTx struct{ *sql.Tx }

func (t sqlTx) Commit(context.Context) error   { return t.Tx.Commit() }
func (t sqlTx) Rollback(context.Context) error { return t.Tx.Rollback() }

func (m *Ledger) beginIn(db *sql.DB, isolation sql.IsolationLevel) beginner {
	if m.dialect.begin == nil {
		return beginIn(db, isolation, m.dialect.guard)
	}
	return func(ctx context.Context, _ error) (transaction, error) {
		return m.dialect.begin(ctx, db, &sql.TxOptions{Isolation: isolation})
	}
}

func beginIn(db *sql.DB, isolation sql.IsolationLevel, g txGuard) beginner {
	opts := &sql.TxOptions{Isolation: isolation}
	return func(ctx context.Context, before error) (transaction, error) {
		if sqlerr.ReadOnly(before) {
			dropReadOnly(ctx, db, g)
		}
		if g == guardMySQL {
			tx, err := beginGuarded(ctx, db, opts)
			if err != nil {
				return nil, err // a nil *guardedTx would not be a nil transaction
			}
			return tx, nil
		}
		tx, err := db.BeginTx(ctx, opts)
		if g == guardSQLite && err == nil {
			return beginSQLite(ctx, tx)
		}
		if g == guardPostgres && err == nil {
			return &postgresTx{Tx: tx}, nil
		}
		return sqlTx{tx}, err
	}
}

// dropReadOnly closes the idle connections of a pool that take no writes. Their server was the
// primary and no longer is. The connections still work, so the pool would hand them out again. It
// stops at the first connection that takes writes, and at the first that cannot be asked.
func dropReadOnly(ctx context.Context, db *sql.DB, g txGuard) {
	ask := `SELECT current_setting('transaction_read_only') = 'on'`
	if g == guardMySQL {
		// MySQL has one variable and MariaDB the other, so each is in a comment that only its
		// own server executes.
		ask = `SELECT @@global.read_only <> 0 /*!80000 OR @@session.transaction_read_only <> 0 */` +
			` /*M! OR @@session.tx_read_only <> 0 */`
	}
	for range db.Stats().Idle {
		conn, err := db.Conn(ctx)
		if err != nil {
			return
		}
		var readOnly bool
		if err := scanOne(ctx, conn, ask, &readOnly); err != nil || !readOnly {
			_ = conn.Close()
			return
		}
		discard(conn)
	}
}

// ofSQL returns the *sql.Tx of a transaction that beginIn has begun.
func ofSQL(tx transaction) *sql.Tx {
	switch tx := tx.(type) {
	case *guardedTx:
		return tx.Tx
	case *serverTx:
		return tx.Tx
	case sqliteTx:
		return tx.Tx
	case *postgresTx:
		return tx.Tx
	default:
		return tx.(sqlTx).Tx //nolint:errcheck,forcetypeassert // there is no sixth
	}
}

// transact runs work in a transaction until the outcome of a try is certain, and commits when work
// has written. work must undo nothing itself, and may be called several times; before is the error
// of the last try whose transaction had begun.
func transact(ctx context.Context, begin beginner,
	work func(tx transaction, before error) (write bool, err error)) error {
	var before, last error
	for try := 0; ; try++ {
		began := false
		err := attempt(ctx, last, begin, func(tx transaction) (bool, error) {
			began = true
			return work(tx, before)
		})
		if last = err; began {
			before = err
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return because(context.Cause(ctx), err)
		case !repeatable(err):
			return err
		case try+1 == maxTries:
			return fmt.Errorf("sqladapter: tried %d times: %w", maxTries, err)
		}
		if cause := backoff.Sleep(ctx, again.Delay(try, 0, nil)); cause != nil {
			return because(cause, err)
		}
	}
}

// repeatable is Retryable for a transaction that holds its own mark, except for a lock timeout,
// which says how long the caller wants to wait, and for an error that the caller has marked as
// permanent.
func repeatable(err error) bool {
	return Retryable(err) && !errors.Is(err, dedup.ErrInFlight) && !dedup.IsPermanent(err)
}

// attempt is one transaction. Until COMMIT is sent, its context ends with the caller's. To cancel a
// COMMIT that was sent would leave open whether it has committed.
func attempt(ctx context.Context, last error, begin beginner,
	work func(tx transaction) (write bool, err error)) error {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	tx, err := begin(inner, last)
	if err != nil {
		return fmt.Errorf("sqladapter: begin: %w", err)
	}
	defer rollback(ctx, tx) // also when work panics; after Commit it does nothing
	write, err := work(tx)
	if err != nil || !write {
		return err
	}
	if !stop() {
		return fmt.Errorf("sqladapter: %w", context.Cause(ctx)) // it has ended, and is rolling back
	}
	defer context.AfterFunc(ctx, func() { breakOff(inner, cancel) })()
	err = tx.Commit(inner)
	if _, native := tx.(native.Transaction); native {
		err = whetherReleased(err)
	}
	if endedByMethod(inner, err) {
		err = effectEnded(sql.ErrTxDone)
	}
	if err != nil {
		return commitError(inner, err)
	}
	return nil
}

// rollback continues when the caller has left. Otherwise another caller would wait for the locks.
func rollback(ctx context.Context, tx transaction) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// breakOff cancels a COMMIT whose caller has left, unless the COMMIT ends within commitGrace.
func breakOff(inner context.Context, cancel context.CancelCauseFunc) {
	if backoff.Sleep(inner, commitGrace) == nil {
		cancel(errNoCommitReply)
	}
}

// commitFailed is the error of a COMMIT that was sent and may or may not have committed.
type commitFailed struct{ error }

// Unwrap returns the server's answer to COMMIT, or why there was none.
func (c *commitFailed) Unwrap() error { return c.error }

func commitError(inner context.Context, err error) error {
	if !errors.Is(err, errNotSent) && !errors.Is(err, errRolledBack) {
		err = &commitFailed{err}
	}
	err = fmt.Errorf("sqladapter: commit: %w", err)
	if inner.Err() != nil {
		return because(context.Cause(inner), err)
	}
	return err
}

// because adds the cause to an error that does not have it yet.
func because(cause, err error) error {
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("sqladapter: %w: %w", cause, err)
}
