package sqladapter

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/sqlerr"
)

// After some errors MySQL rolls a transaction back by itself, and only the statement that met the
// error learns of it. database/sql still takes its Tx for open, and the next statement runs in no
// transaction, or in a new one. A savepoint shows it: it is gone with its transaction.
const (
	setGuard, releaseGuard = `SAVEPOINT onceward_guard`, `RELEASE SAVEPOINT onceward_guard`
	undoGuard              = `ROLLBACK TO SAVEPOINT onceward_guard`
	// Outside of a transaction this savepoint is gone before it can be released. Its name differs
	// from the guard's: a second savepoint of the same name would replace the first.
	setOpen, releaseOpen = `SAVEPOINT onceward_open`, `RELEASE SAVEPOINT onceward_open`
)

// txGuard says how to detect that a transaction has ended without its owner's knowledge.
type txGuard uint8

const (
	noGuard txGuard = iota
	guardMySQL
	guardSQLite
	guardPostgres
)

// errNotOpen refuses a statement that would be committed by itself.
var errNotOpen = inputError("tx",
	"is in no transaction: it was not begun, or the database has rolled it back after an error")

// errRolledBack says that the server has ended a transaction before its owner did.
var errRolledBack = errors.New("the database has rolled the transaction back")

// errNotSent says that COMMIT was not sent, because nobody knows whether the transaction is open.
var errNotSent = errors.New("COMMIT was not sent")

// errCommittedItself says that the transaction of a try had ended before its COMMIT, and was not
// rolled back but committed. Some statements of MySQL commit the open transaction, and so does an
// effect's own COMMIT in any database.
var errCommittedItself = errors.New(
	"the transaction has committed by itself before its effect had ended: " +
		"TRUNCATE, LOCK TABLES and DDL do that in MySQL; what the effect did after that is rolled back")

// endedTries are the stamps of marks whose transactions had ended before their COMMIT. A duplicate
// of such a mark does not prove that the effect is done.
type endedTries map[int64]bool

// note adds the marks of the last try, unless its COMMIT was sent. The error before says how that
// try ended. The kind of error does not matter: it may be a deadlock that came after the mark was
// committed.
func (e *endedTries) note(before error, marks ...Mark) {
	var sent *commitFailed
	if before == nil || errors.As(before, &sent) {
		return
	}
	if *e == nil {
		*e = endedTries{}
	}
	for _, mark := range marks {
		if mark.First() {
			(*e)[mark.stamp] = true
		}
	}
}

// check returns a permanent error: to run the effect again would only find the mark.
func (e endedTries) check(marks ...Mark) error {
	for _, mark := range marks {
		if !mark.First() && e[mark.stamp] {
			return dedup.Permanent(fmt.Errorf("sqladapter: %w", errCommittedItself))
		}
	}
	return nil
}

func (m *Ledger) checkOpen(ctx context.Context, tx Tx) error {
	return checkOpen(ctx, tx, m.dialect.guard)
}

// checkOpen refuses a transaction that is not open, for the dialects where one can end without its
// owner's knowledge: the record would be committed by itself, and the next crash would lose the
// message. With autocommit off it cannot recognize a transaction that has begun anew.
func checkOpen(ctx context.Context, tx Tx, g txGuard) error {
	switch g {
	case noGuard:
		return nil
	case guardSQLite:
		return checkSQLite(ctx, tx)
	case guardPostgres:
		return checkPostgres(ctx, tx)
	case guardMySQL:
	}
	if _, err := exec(ctx, tx, statement{text: setOpen}); err != nil {
		return err
	}
	_, err := exec(ctx, tx, statement{text: releaseOpen})
	if sqlerr.NoSavepoint(err) {
		return errNotOpen
	}
	return err
}

// endedByMethod reports that an effect has called Commit or Rollback of its transaction: while ctx
// lasts, nothing else ends one of database/sql.
func endedByMethod(ctx context.Context, err error) bool {
	return errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil
}

// whetherEnded is for an error of ours after the effect. It checks whether the effect has ended its
// transaction. If so, its marks may be committed, and only another try can tell them from the marks
// of an effect that is done.
func (m *Ledger) whetherEnded(ctx context.Context, tx transaction, err error) error {
	if endedByMethod(ctx, err) {
		return effectEnded(err)
	}
	if m.dialect.guard != guardMySQL {
		return err
	}
	if _, gone := exec(ctx, tx, statement{text: undoGuard}); sqlerr.NoSavepoint(gone) {
		return fmt.Errorf("%w: %w", errRolledBack, err)
	}
	return err
}

// probe inserts the same row twice in a transaction that is rolled back. The count of the second
// INSERT must say that the row was there, and after the rollback the row must be gone. This is not
// needed where INSERT returns the new rows.
func (m *Ledger) probe(ctx context.Context, db *sql.DB) error {
	if !m.dialect.counts {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqladapter: probe: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // the second time it does nothing
	e := []entry{{id: newID()}}
	for i, want := range []int64{1, 0} {
		n, err := exec(ctx, tx, m.dialect.insert(e, newSalt(m.dialect.salt)))
		if err != nil {
			return fmt.Errorf("sqladapter: probe: %w", err)
		}
		if n != want {
			return fmt.Errorf("sqladapter: INSERT %d of one row says that it changed %d, not %d: a duplicate would look new; "+
				"the connection must not set clientFoundRows", i+1, n, want)
		}
	}
	if err := m.probeWait(ctx, db, e); err != nil {
		return err
	}
	if err := tx.Rollback(); err != nil {
		return fmt.Errorf("sqladapter: probe: %w", err)
	}
	return m.wantGone(ctx, db, e)
}

// alone runs reads that are in no transaction of the caller. On a pool of MySQL they get a
// transaction of their own: on a connection with autocommit off, as Preflight advises, they would
// begin one that nobody ends. The next user of that connection would read an old snapshot, and
// could not choose a level (1568).
func alone(ctx context.Context, q Tx, g txGuard, work func(q Tx) error) error {
	p, pool := q.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
		SetMaxOpenConns(n int)
	})
	if g != guardMySQL || !pool {
		return work(q)
	}
	tx, err := p.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return work(tx)
}

func (m *Ledger) alone(ctx context.Context, q Tx, work func(q Tx) error) error {
	return alone(ctx, q, m.dialect.guard, work)
}

// write runs one statement in a transaction of its own, and commits it: see alone.
func (m *Ledger) write(ctx context.Context, db *sql.DB, s statement) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if _, err := exec(ctx, tx, s); err != nil {
		return err
	}
	return tx.Commit()
}

// newID returns an id that no key has.
func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func (m *Ledger) wantGone(ctx context.Context, db *sql.DB, e []entry) error {
	var rows []row
	err := m.alone(ctx, db, func(q Tx) (err error) {
		rows, err = queryRows(ctx, q, m.dialect.peek(e), 1, (*columns).loaded)
		return err
	})
	if err != nil {
		return fmt.Errorf("sqladapter: probe: %w", err)
	}
	if len(rows) > 0 {
		return fmt.Errorf("sqladapter: table %s has no transactions: a row outlived its rollback; its engine must be InnoDB", m.table.full)
	}
	return nil
}

// exec runs a statement of a dialect that counts rows. checkTx has checked that tx has ExecContext.
func exec(ctx context.Context, tx Tx, s statement) (int64, error) {
	res, err := tx.(execTx).ExecContext(ctx, s.text, s.args...) //nolint:errcheck,forcetypeassert // see above
	if sqlerr.Duplicate(err) {
		return 0, nil // from SQL Server, which has undone only the statement
	}
	if err != nil {
		return 0, serverRefusal(err)
	}
	return res.RowsAffected()
}

// guardedTx is a transaction of MySQL that begins with a savepoint, and releases it before it
// commits. Autocommit is off. Otherwise, after the server has rolled back, each following statement
// would commit by itself. With autocommit off they are in a transaction that has no such savepoint,
// and is never committed.
type guardedTx struct {
	*sql.Tx
	conn      *sql.Conn
	committed bool
	back      string // a further setting to restore on the connection; empty when there is none
}

const (
	// Switching autocommit on first commits what was left open on a connection that has autocommit
	// off. BEGIN would do so too, but the level is chosen before BEGIN, and MySQL refuses that
	// while a transaction is open (1568).
	autocommitOff  = `SET @onceward_autocommit = @@autocommit, autocommit = 1, autocommit = 0`
	autocommitBack = `SET autocommit = @onceward_autocommit`
	rollbackNow    = `ROLLBACK`
)

func beginGuarded(ctx context.Context, db *sql.DB, opts *sql.TxOptions) (*guardedTx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, autocommitOff); err != nil {
		discard(conn)
		return nil, err
	}
	g := &guardedTx{conn: conn}
	if g.Tx, err = conn.BeginTx(ctx, opts); err == nil {
		_, err = g.ExecContext(ctx, setGuard)
	}
	if err != nil {
		_ = g.Rollback(ctx)
		return nil, err
	}
	return g, nil
}

// Commit does not send COMMIT when the savepoint is gone.
func (g *guardedTx) Commit(ctx context.Context) error {
	_, err := g.ExecContext(ctx, releaseGuard)
	if sqlerr.NoSavepoint(err) {
		return fmt.Errorf("%w: %w", errRolledBack, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	err = g.Tx.Commit()
	g.committed = err == nil
	return err
}

// Rollback returns the connection with its old settings, also after Commit.
//
// The transaction must have ended before autocommit is switched back on, because that commits an
// open one. When the context ends, database/sql rolls back in a goroutine of its own, and says here
// that the transaction is done before that ROLLBACK has run. So Rollback sends another one.
func (g *guardedTx) Rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	restore := []string{autocommitBack}
	if g.Tx != nil && g.Tx.Rollback() != nil && !g.committed {
		restore = []string{rollbackNow, autocommitBack}
	}
	if g.back != "" {
		restore = append(restore, g.back)
	}
	for _, text := range restore {
		if _, err := g.conn.ExecContext(ctx, text); err != nil {
			discard(g.conn)
			return err
		}
	}
	return g.conn.Close()
}

// discard closes a connection that must not go back to its pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}
