// Package pgxv5 makes the marks of package sqladapter in transactions of pgx, version 5.
//
//	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres, Namespace: "payments"})
//	...
//	_, err = pgxv5.Do(ctx, ledger, pool, event.ID, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, `UPDATE account SET ...`) // the effect
//		return err
//	})
//
// [Do], [DoBatch], [Confirm], [FenceDo] and [Runner] are those of sqladapter, with its retries and
// its handling of a lost COMMIT. In a transaction of your own call [Mark], or wrap it:
// ledger.MarkTx(ctx, pgxv5.Wrap(tx), key), and commit tx yourself. Migrate takes a *sql.DB, which
// stdlib.OpenDBFromPool of pgx makes from a pool. [NewStore] keeps claims and records over a pool,
// for effects that are elsewhere.
//
// Every query mode of pgx works. Behind PgBouncer in transaction mode use cache_describe, exec or
// simple_protocol. Use the default, cache_statement, only where PgBouncer keeps prepared statements
// (max_prepared_statements, since 1.21). Use describe_exec only in transactions: outside of one the
// pooler may give the second half of a statement to another connection.
//
// An error of Commit that is not from the server leaves open whether it has committed, whatever
// pgconn.SafeToRetry says: some versions call a lost COMMIT safe to repeat.
package pgxv5

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/native"
)

// Beginner begins transactions: *pgxpool.Pool, and *pgx.Conn when nobody else uses it. A lost
// connection stays lost, so only a pool can run a transaction again.
type Beginner interface {
	// BeginTx is that of *pgxpool.Pool.
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Tx is a pgx.Tx in the form that sqladapter takes. Make it with [Wrap].
type Tx struct {
	// Tx is the transaction; its own methods are for the effect.
	pgx.Tx
}

// Wrap makes a transaction of pgx usable in [sqladapter.Ledger.MarkTx] and wherever sqladapter
// takes a transaction. It does not end the transaction. For a nil tx it returns nil, which these
// refuse.
func Wrap(tx pgx.Tx) *Tx {
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return &Tx{tx}
}

// ExecContext is that of *sql.Tx, for outbox.Outbox.InsertTx and similar methods. The result has no
// LastInsertId, which PostgreSQL does not know.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	if err != nil {
		return nil, done(err)
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext is never called, because there is QueryRows.
func (*Tx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.New("pgxv5: a transaction of pgx has no *sql.Rows")
}

// TakesArrays is that of [native.Arrays]: ids are sent in binary form.
func (*Tx) TakesArrays() {}

// QueryRows runs a statement. A [][16]byte among args is an array of uuid.
func (t *Tx) QueryRows(ctx context.Context, query string, args ...any) (native.Rows, error) {
	for i, arg := range args {
		if ids, ok := arg.([][16]byte); ok {
			args[i] = uuids(ids)
		}
	}
	found, err := t.Query(ctx, query, args...)
	if err != nil {
		return nil, done(err)
	}
	return rows{found}, nil
}

// Commit is that of pgx.Tx. If the transaction has been ended before, errors.Is finds
// [sql.ErrTxDone] in the error, as it does with database/sql.
func (t *Tx) Commit(ctx context.Context) error { return done(t.Tx.Commit(ctx)) }

func done(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err)
	}
	return err
}

// uuids returns a type that pgx knows in every query mode.
func uuids(ids [][16]byte) []pgtype.UUID {
	all := make([]pgtype.UUID, len(ids))
	for i := range ids {
		all[i] = pgtype.UUID{Bytes: ids[i], Valid: true}
	}
	return all
}

// rows has the Close of database/sql. It reads the remaining rows, and returns their error.
type rows struct{ pgx.Rows }

func (r rows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// Do is [sqladapter.Ledger.Do] in a transaction of db, at three round trips and those of effect. A
// savepoint is sent with BEGIN and its release with COMMIT, so that an effect that has sent COMMIT
// or ROLLBACK as text is an error. A db that wraps a pool must pass on BeginQuery and CommitQuery
// of the options. A nil db or effect, and a ledger that New has not made, are a
// [*dedup.InputError].
func Do(
	ctx context.Context, ledger *sqladapter.Ledger, db Beginner, key string,
	effect func(ctx context.Context, tx pgx.Tx) error, opts ...dedup.Option,
) (sqladapter.Mark, error) {
	if effect == nil {
		return sqladapter.Mark{}, &dedup.InputError{Field: "effect", Reason: "is nil"}
	}
	n, err := over(ledger, db)
	if err != nil {
		return sqladapter.Mark{}, err
	}
	return n.Do(ctx, key, func(ctx context.Context, tx native.Transaction) error {
		return effect(ctx, tx.(*Tx).Tx) //nolint:errcheck,forcetypeassert // begin has made it
	}, opts...)
}

// Ledger is a ledger whose Do is that of this package. outbox.Do takes it with a pool:
//
//	outbox.Do(ctx, box, pgxv5.Ledger{Ledger: ledger}, pool, key, effect)
type Ledger struct {
	// Ledger has the marks. No default.
	*sqladapter.Ledger
}

// Do is the function [Do], with a tx that outbox.Outbox.InsertTx and everything in sqladapter
// takes.
func (l Ledger) Do(
	ctx context.Context, db *pgxpool.Pool, key string,
	effect func(ctx context.Context, tx *Tx) error, opts ...dedup.Option,
) (sqladapter.Mark, error) {
	if effect == nil {
		return sqladapter.Mark{}, &dedup.InputError{Field: "effect", Reason: "is nil"}
	}
	return Do(ctx, l.Ledger, db, key, func(ctx context.Context, tx pgx.Tx) error {
		return effect(ctx, Wrap(tx))
	}, opts...)
}

// DoBatch is [sqladapter.Ledger.DoBatch] in a transaction of db. It refuses nil as [Do]
// does.
func DoBatch(
	ctx context.Context, ledger *sqladapter.Ledger, db Beginner, keys []string,
	effect func(ctx context.Context, tx pgx.Tx, first []int) error, opts ...dedup.Option,
) ([]sqladapter.Mark, error) {
	if effect == nil {
		return nil, &dedup.InputError{Field: "effect", Reason: "is nil"}
	}
	n, err := over(ledger, db)
	if err != nil {
		return nil, err
	}
	return n.DoBatch(ctx, keys,
		func(ctx context.Context, tx native.Transaction, first []int) error {
			return effect(ctx, tx.(*Tx).Tx, first) //nolint:errcheck,forcetypeassert // begin has made it
		}, opts...)
}

// Mark is [sqladapter.Ledger.MarkTx] in the caller's own transaction. A nil ledger or tx is a
// [*dedup.InputError].
func Mark(
	ctx context.Context, ledger *sqladapter.Ledger, tx pgx.Tx, key string, opts ...dedup.Option,
) (sqladapter.Mark, error) {
	return ledger.MarkTx(ctx, Wrap(tx), key, opts...)
}

// FenceDo is [sqladapter.Fence.Do] in a transaction of db. It refuses nil as [Do] does.
func FenceDo(
	ctx context.Context, fence *sqladapter.Fence, db Beginner,
	p sqladapter.Position, from, to int64,
	effect func(ctx context.Context, tx pgx.Tx, start int64) error,
) (sqladapter.Advance, error) {
	if effect == nil {
		return sqladapter.Advance{}, &dedup.InputError{Field: "effect", Reason: "is nil"}
	}
	n, err := over(nil, db)
	if err != nil {
		return sqladapter.Advance{}, err
	}
	return n.FenceDo(ctx, fence, p, from, to,
		func(ctx context.Context, tx native.Transaction, start int64) error {
			return effect(ctx, tx.(*Tx).Tx, start) //nolint:errcheck,forcetypeassert // begin has made it
		})
}

// Runner is [sqladapter.Ledger.Runner] with transactions of db, in which [TxFrom] finds a pgx.Tx
// instead of a *sql.Tx. It refuses nil as [Do] does.
func Runner(ledger *sqladapter.Ledger, db Beginner) (*sqladapter.Runner, error) {
	n, err := over(ledger, db)
	if err != nil {
		return nil, err
	}
	n.Attach = func(ctx context.Context, tx native.Transaction) context.Context {
		return context.WithValue(ctx, txKey{}, tx.(*Tx).Tx) //nolint:errcheck,forcetypeassert // begin has made it
	}
	return n.Runner()
}

// txKey is the context key of an effect's transaction.
type txKey struct{}

// TxFrom returns the transaction of the effect of a [Runner] that runs under ctx: see
// [sqladapter.TxFrom]. It returns false when ctx is not that of such an effect.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

// Confirm is [sqladapter.Ledger.Confirm] in a transaction of db, which must be on another
// connection than the lost one.
func Confirm(
	ctx context.Context, ledger *sqladapter.Ledger, db Beginner, key string, mark sqladapter.Mark,
	opts ...dedup.Option,
) (sqladapter.CommitStatus, error) {
	n, err := over(ledger, db)
	if err != nil {
		return sqladapter.Undecided, err
	}
	return n.Confirm(ctx, key, mark, opts...)
}

func over(ledger *sqladapter.Ledger, db Beginner) (sqladapter.Native, error) {
	if v := reflect.ValueOf(db); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return sqladapter.Native{}, &dedup.InputError{Field: "db", Reason: "is nil"}
	}
	begin := func(ctx context.Context, level sql.IsolationLevel) (native.Transaction,
		error) {
		opts, err := options(level)
		if err != nil {
			return nil, err
		}
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return nil, err
		}
		return &Tx{tx}, nil
	}
	n := sqladapter.Native{Ledger: ledger, Begin: begin, DB: db}
	if pool, ok := db.(interface{ Reset() }); ok {
		n.Reset = pool.Reset
	}
	return n, nil
}

// The savepoint is sent with BEGIN, and its release with COMMIT, in one round trip each. When the
// effect has ended the transaction the savepoint is gone, and the server does not execute COMMIT.
const setGuard, releaseAndCommit = "; savepoint onceward_guard",
	"release savepoint onceward_guard; commit"

// options translates a level. LevelDefault leaves the choice to the server.
func options(level sql.IsolationLevel) (pgx.TxOptions, error) {
	var at pgx.TxIsoLevel
	switch level {
	case sql.LevelDefault:
		return pgx.TxOptions{BeginQuery: "begin" + setGuard, CommitQuery: releaseAndCommit}, nil
	case sql.LevelReadUncommitted:
		at = pgx.ReadUncommitted
	case sql.LevelReadCommitted:
		at = pgx.ReadCommitted
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		at = pgx.RepeatableRead
	case sql.LevelSerializable:
		at = pgx.Serializable
	default:
		return pgx.TxOptions{}, &dedup.InputError{Field: "Isolation",
			Reason: fmt.Sprintf("is %v, which PostgreSQL does not have", level)}
	}
	return pgx.TxOptions{IsoLevel: at, BeginQuery: "begin isolation level " + string(at) + setGuard,
		CommitQuery: releaseAndCommit}, nil
}
