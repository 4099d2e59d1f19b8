package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/internal/sqlerr"
)

// serverTx is a transaction of SQL Server whose COMMIT is sent only if it is still the transaction
// that was begun. XACT_ABORT is on: when the effect ignores an error, no part of the effect is
// committed. When the server has ended the transaction, later statements would be committed one by
// one: go-mssqldb before 1.10 sends them anyway. With IMPLICIT_TRANSACTIONS they are in another
// transaction, which has another id and is rolled back ("SET IMPLICIT_TRANSACTIONS").
type serverTx struct {
	*sql.Tx
	conn *sql.Conn
	id   int64
	// aborts is what XACT_ABORT was before.
	aborts bool
}

// XACT_ABORT is bit 16384 of @@OPTIONS. serverBegun and serverBack run without parameters: with
// parameters, the server would restore the options at the end of the statement.
// IMPLICIT_TRANSACTIONS is set inside the transaction. If it were set before, BEGIN would open two
// transactions, and COMMIT would end only one of them.
const (
	serverBegun = `DECLARE @was int = @@OPTIONS; SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS ON;` +
		` SELECT CAST(@was & 16384 AS bigint), CAST(@@TRANCOUNT AS bigint), CURRENT_TRANSACTION_ID()`
	serverSame = `SELECT CASE WHEN XACT_STATE() = 1 AND @@TRANCOUNT = 1 AND CURRENT_TRANSACTION_ID() = @p1 THEN 1 ELSE 0 END`
	serverBack = `IF @@TRANCOUNT > 0 ROLLBACK; SET IMPLICIT_TRANSACTIONS OFF; SET XACT_ABORT `
)

// errInAnother says that COMMIT would commit nothing.
var errInAnother = errors.New(
	"the transaction is in another one: the session must not have IMPLICIT_TRANSACTIONS ON")

func beginServer(ctx context.Context, db *sql.DB, opts *sql.TxOptions) (transaction, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &serverTx{conn: conn}
	if t.Tx, err = conn.BeginTx(ctx, opts); err != nil {
		_ = conn.Close() // the session is as it was
		return nil, err
	}
	var aborts, depth int64
	err = t.QueryRowContext(ctx, serverBegun).Scan(&aborts, &depth, &t.id)
	if err == nil && depth != 1 {
		err = errInAnother
	}
	t.aborts = aborts != 0
	if err != nil {
		_ = t.Rollback(ctx)
		return nil, err
	}
	return t, nil
}

// Commit sends no COMMIT when the transaction is another one, nor when the effect has begun a
// nested one: COMMIT would end only the nested one.
func (t *serverTx) Commit(ctx context.Context) error {
	var same int64
	if err := t.QueryRowContext(ctx, serverSame, t.id).Scan(&same); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	if same != 1 {
		return errRolledBack
	}
	return t.Tx.Commit()
}

// Rollback restores the options of the session, also after Commit.
func (t *serverTx) Rollback(ctx context.Context) error {
	err := t.Tx.Rollback()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	back := serverBack + `OFF`
	if t.aborts {
		back = serverBack + `ON`
	}
	if _, err := t.conn.ExecContext(ctx, back); err != nil {
		discard(t.conn)
		return err
	}
	return errors.Join(err, t.conn.Close())
}

// serverRefusal names the field when SQL Server has refused a write that is in no transaction.
func serverRefusal(err error) error {
	if n, _ := sqlerr.SQLServer(err); n == sqlserverNotOpen {
		reason := "is in no transaction that can be committed: it was not begun, or the server has ended it after an error"
		return fmt.Errorf("%w: %w", inputError("tx", reason), err)
	}
	return err
}

// probeWait inserts in a second transaction what an open one has inserted: the second must wait. It
// does nothing where the pool allows only one connection.
func (m *Ledger) probeWait(ctx context.Context, db *sql.DB, e []entry) error {
	if m.dialect.impatient == "" || db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqladapter: probe: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	insert := m.dialect.insert(e, newSalt(m.dialect.salt))
	n, err := exec(ctx, tx, statement{m.dialect.impatient + insert.text, insert.args})
	switch {
	case sqlerr.Waited(err):
		return nil
	case err != nil:
		return fmt.Errorf("sqladapter: probe: %w", err)
	}
	return fmt.Errorf("sqladapter: INSERT of a row that another transaction has inserted and not committed did not wait, and changed %d: "+
		"two could be the first", n)
}
