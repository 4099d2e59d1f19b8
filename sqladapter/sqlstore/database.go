package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
	"github.com/onceward/onceward/sqladapter/native"
)

// Native is a PostgreSQL database that is not of database/sql. Package sqladapter/pgxv5 uses it to
// make a store from a pool of pgx. All fields are required, and many goroutines use them at once.
type Native struct {
	// Begin begins a transaction at a level.
	Begin func(ctx context.Context, level sql.IsolationLevel) (native.Transaction, error)
	// Query runs a statement on a connection of its own, and commits it at its end.
	Query func(ctx context.Context, query string, args ...any) (native.Rows, error)
	// Open opens the database for [Store.Migrate], [Store.Check] and [Store.Drop], which close it
	// again.
	Open func() *sql.DB
}

func (n *Native) check() error {
	switch {
	case n.Begin == nil:
		return dialect.InputError("Begin", "is nil")
	case n.Query == nil:
		return dialect.InputError("Query", "is nil")
	case n.Open == nil:
		return dialect.InputError("Open", "is nil")
	}
	return nil
}

// querier runs statements: a pool or a transaction.
type querier interface {
	query(ctx context.Context, st statement) (native.Rows, error)
	exec(ctx context.Context, st statement) error
}

// transaction is ended by commit or rollback. rollback is always called.
type transaction interface {
	querier
	commit(ctx context.Context) error
	rollback(ctx context.Context)
}

// database is what a store works on.
type database interface {
	querier
	begin(ctx context.Context, level sql.IsolationLevel) (transaction, error)
	// open returns a pool for migrations; done is called after them.
	open() (db *sql.DB, done func())
}

// queryOne reads one row; its error is [sql.ErrNoRows] when there is none.
func queryOne(ctx context.Context, q querier, text string, dest ...any) (err error) {
	rows, err := q.query(ctx, statement{text: text})
	if err != nil {
		return err
	}
	defer func() {
		if closed := rows.Close(); err == nil {
			err = closed
		}
	}()
	if rows.Next() {
		return rows.Scan(dest...)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return sql.ErrNoRows
}

// sqlRunner is *sql.DB or *sql.Tx.
type sqlRunner interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type sqlQuerier struct{ of sqlRunner }

func (q sqlQuerier) query(ctx context.Context, st statement) (native.Rows, error) {
	rows, err := q.of.QueryContext(ctx, st.text, st.args...) //nolint:rowserrcheck // its reader does
	if err != nil {
		return nil, err // a nil *sql.Rows would not be a nil Rows
	}
	return rows, nil
}

func (q sqlQuerier) exec(ctx context.Context, st statement) error {
	_, err := q.of.ExecContext(ctx, st.text, st.args...)
	return err
}

type sqlTx struct {
	sqlQuerier
	tx      *sql.Tx
	release func()
}

func (t *sqlTx) commit(context.Context) error { return t.tx.Commit() }

func (t *sqlTx) rollback(context.Context) {
	_ = t.tx.Rollback() // after Commit it does nothing
	t.release()
}

type sqlDatabase struct {
	sqlQuerier
	db *sql.DB
}

func (d *sqlDatabase) begin(ctx context.Context, level sql.IsolationLevel) (transaction, error) {
	tx, release, err := dialect.BeginAt(ctx, d.db, level)
	if err != nil {
		return nil, err
	}
	return &sqlTx{sqlQuerier{tx}, tx, release}, nil
}

func (d *sqlDatabase) open() (*sql.DB, func()) { return d.db, func() {} }

// rollbackGrace bounds a rollback, which does not end with its caller's context.
const rollbackGrace = 5 * time.Second

type nativeQuerier struct {
	run func(ctx context.Context, query string, args ...any) (native.Rows, error)
}

func (q nativeQuerier) query(ctx context.Context, st statement) (native.Rows, error) {
	return q.run(ctx, st.text, st.args...)
}

// exec gets the error of a statement without rows when it closes the rows.
func (q nativeQuerier) exec(ctx context.Context, st statement) error {
	rows, err := q.run(ctx, st.text, st.args...)
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	err = rows.Err()
	if closed := rows.Close(); err == nil {
		err = closed
	}
	return err
}

type nativeTx struct {
	nativeQuerier
	tx native.Transaction
}

func (t *nativeTx) commit(ctx context.Context) error { return t.tx.Commit(ctx) }

func (t *nativeTx) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackGrace)
	defer cancel()
	_ = t.tx.Rollback(ctx) // after Commit it does nothing
}

type nativeDatabase struct {
	nativeQuerier
	of Native
}

func (d *nativeDatabase) begin(ctx context.Context, level sql.IsolationLevel) (transaction,
	error) {
	tx, err := d.of.Begin(ctx, level)
	if err != nil {
		return nil, err
	}
	return &nativeTx{nativeQuerier{tx.QueryRows}, tx}, nil
}

func (d *nativeDatabase) open() (*sql.DB, func()) {
	db := d.of.Open()
	return db, func() { _ = db.Close() }
}
