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

// MySQL rolls a transaction back by itself after some errors and tells nobody but the
// statement that met them. database/sql still takes its Tx for open, and what is sent next
// is in no transaction, or in a new one. A savepoint tells: it is gone with its transaction.
const (
	setGuard, releaseGuard = `SAVEPOINT onceward_guard`, `RELEASE SAVEPOINT onceward_guard`
	undoGuard              = `ROLLBACK TO SAVEPOINT onceward_guard`
	// Outside of a transaction this savepoint is gone before it can be released. It has a name
	// of its own: one that is set again replaces the first.
	setOpen, releaseOpen = `SAVEPOINT onceward_open`, `RELEASE SAVEPOINT onceward_open`
)

// guard is what is done about transactions that end without their owner's knowledge.
type txGuard uint8

const (
	noGuard txGuard = iota
	guardMySQL
	guardSQLite
	guardPostgres
)

// errNotOpen refuses what would be committed by itself.
var errNotOpen = inputError("tx",
	"is in no transaction: it was not begun, or the database has rolled it back after an error")

// errRolledBack says that the server has ended a transaction before its owner did.
var errRolledBack = errors.New("the database has rolled the transaction back")

// errNotSent says that it was not found out whether a transaction is open, so that no COMMIT was
// sent.
var errNotSent = errors.New("COMMIT was not sent")

// errCommittedItself says that the transaction of a try was not rolled back when it had ended
// before its COMMIT. Some statements of MySQL commit what is open, and any database a COMMIT of
// the effect's own.
var errCommittedItself = errors.New(
	"the transaction has committed by itself before its effect had ended: " +
		"TRUNCATE, LOCK TABLES and DDL do that in MySQL; what the effect did after that is rolled back")

// endedTries are the stamps of marks whose transactions had ended before their COMMIT. A duplicate
// of one of them is not an effect that is done.
type endedTries map[int64]bool

// note takes the marks of the try that before has ended, unless that was sent COMMIT. Why it has
// ended does not matter: it may have been a deadlock, after the mark was committed.
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

// check is permanent: to run it again would only find the mark.
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

// checkOpen refuses, for the dialects where a transaction can end behind its owner's back,
// one that is not open: the record would be committed by itself, and the message lost with
// the next crash. It cannot tell a transaction that has begun anew, with autocommit off.
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

// whetherEnded looks, for an error of ours that follows the effect, whether that has ended its
// transaction: then its marks may be committed, and only another try would tell them from those of
// an effect that is done.
func (m *Ledger) whetherEnded(ctx context.Context, tx transaction, err error) error {
	if m.dialect.guard != guardMySQL {
		return err
	}
	if _, gone := exec(ctx, tx, statement{text: undoGuard}); sqlerr.NoSavepoint(gone) {
		return fmt.Errorf("%w: %w", errRolledBack, err)
	}
	return err
}

// probe inserts the same row twice in a transaction that is rolled back. The count of the
// second must say that it was there, and afterwards it must be gone. Not needed where INSERT
// returns the rows that are new.
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

// alone runs statements that read, and stand by themselves on a pool. With MySQL they get a
// transaction: on a connection with autocommit off, as Preflight advises, they would begin one
// that nobody ends. Whoever gets the connection next would read what was there when it began, and
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

// write runs one statement that stands by itself, and commits it: see alone.
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

// newID is one that nobody has.
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

// exec runs a statement of a dialect that counts rows. checkTx has seen that it can.
func exec(ctx context.Context, tx Tx, s statement) (int64, error) {
	res, err := tx.(execTx).ExecContext(ctx, s.text, s.args...) //nolint:errcheck,forcetypeassert // see above
	if sqlerr.Duplicate(err) {
		return 0, nil // of SQL Server, which has undone the statement and nothing else
	}
	if err != nil {
		return 0, serverRefusal(err)
	}
	return res.RowsAffected()
}

// guardedTx is a transaction of MySQL that begins with a savepoint, and releases it before it
// commits. Autocommit is off. Otherwise the statements that follow after the server has rolled back
// would be committed one by one. Now they are in a transaction that has no such savepoint, and
// is never committed.
type guardedTx struct {
	*sql.Tx
	conn      *sql.Conn
	committed bool
	back      string // what else is to be put back on the connection; empty when nothing is
}

const (
	// To switch it on commits what was left open on a connection where it is off, as BEGIN would;
	// but before BEGIN there is the choice of a level, which is refused as long as that is open
	// (1568).
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

// Commit is not sent when the savepoint is gone.
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

// Rollback gives the connection back as it was, also after Commit.
//
// The transaction must have ended before autocommit is put back: switched on, autocommit commits
// it. When its context ends database/sql rolls back by itself, in a goroutine of its own, and
// answers here that it is done before it is. So the server is told once more.
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
