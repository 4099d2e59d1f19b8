package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/sqlerr"
)

// transaction is a transaction at READ COMMITTED.
type transaction struct {
	*sql.Tx
	conn *sql.Conn // its own connection, or nil
}

// end rolls back what is not committed. It must always be called.
func (t *transaction) end() {
	_ = t.Rollback() // after Commit it does nothing
	if t.conn != nil {
		_ = t.conn.Close()
	}
}

// begin begins a transaction in which every statement sees what is committed when it begins.
//
// On a pool of MySQL with autocommit off, any statement outside of a transaction opens one that
// nobody ends. Then the server refuses another isolation level, on that connection forever. A
// transaction on a connection that has come back to its pool belongs to nobody. So begin rolls it
// back, as the end of the connection would.
func (o *Outbox) begin(ctx context.Context, db *sql.DB) (*transaction, error) {
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	tx, err := db.BeginTx(ctx, opts)
	if err == nil {
		return &transaction{Tx: tx}, nil
	}
	if !sqlerr.LeftOpen(err) {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = conn.ExecContext(ctx, `ROLLBACK`); err == nil {
		tx, err = conn.BeginTx(ctx, opts)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &transaction{tx, conn}, nil
}

// queryer is a pool or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// fresh returns a pool or a transaction in which a statement sees what is committed now. On a
// connection of MySQL with autocommit off, as sqladapter advises, a statement outside of a
// transaction would open a transaction that never ends, and later statements would see its snapshot
// forever.
func (o *Outbox) fresh(ctx context.Context, db *sql.DB) (from queryer, end func(), err error) {
	if o.dialect.kind != MySQL {
		return db, func() {}, nil
	}
	tx, err := o.begin(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	return tx, tx.end, nil
}

// locked is a shard that no other relay publishes from.
type locked struct {
	tx     *transaction // its end releases the lock; nil where a lease is held
	reader queryer
	server int64 // the run of the server that has granted it: see writers

	ctx     context.Context // of the present part of the turn
	next    func(time.Duration)
	budget  func()
	release func() // gives up the permission to keep the lock after its turn; or nil
}

// end may be called twice.
func (l *locked) end() {
	if l.tx != nil {
		l.tx.end()
	}
	l.budget()
	if l.release != nil {
		l.release()
		l.release = nil
	}
}

// lock takes the shard, or returns nil when another relay has it.
func (r *Relay) lock(ctx context.Context, no int) (*locked, error) {
	if r.box.dialect.kind == SQLite {
		return r.lease(ctx, no)
	}
	// READ COMMITTED: the statement that reads must see all deletes from before the lock was
	// granted, not the rows that existed when the transaction began to wait for it.
	tx, err := r.box.begin(ctx, r.cfg.DB)
	if err != nil {
		return nil, fmt.Errorf("outbox: begin: %w", err)
	}
	var server int64
	err = tx.QueryRowContext(ctx, r.statements.lock, no).Scan(&server)
	if err == nil && server != 0 {
		return &locked{tx: tx, reader: tx, server: server}, nil
	}
	tx.end()
	if err == nil || err == sql.ErrNoRows { //nolint:errorlint // Scan returns it as it is
		return nil, nil
	}
	return nil, fmt.Errorf("outbox: lock: %w", err)
}

// lease is the lock of an engine with one writer, where no transaction may wait for a broker.
func (r *Relay) lease(ctx context.Context, no int) (*locked, error) {
	lasts := r.cfg.PublishTimeout + grace
	result, err := r.cfg.DB.ExecContext(ctx, r.statements.lock, r.name, lasts.Milliseconds(),
		no, r.name)
	if err != nil {
		return nil, fmt.Errorf("outbox: lease: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return nil, err
	}
	return &locked{reader: r.cfg.DB, server: 1}, nil
}
