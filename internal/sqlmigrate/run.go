package sqlmigrate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

// Up applies what is missing, up to version to. Several processes may call it at once: one does
// it, and the others find it done. If the tables have the version, it costs two round trips, takes
// no lock, and needs only the right to read. A version newer than this program knows is a
// [*LevelError].
func (m *Migrations) Up(ctx context.Context, db *sql.DB, to int) error {
	if to < 1 || to > m.Newest() {
		return m.wrap(fmt.Errorf("up to %d: there are versions 1 to %d", to, m.Newest()))
	}
	return m.run(ctx, db, func(has int) (next, bool) {
		if has >= to {
			return next{}, false
		}
		return next{version: has + 1, statements: m.versions[has].up}, true
	})
}

// Down undoes versions down to version to, and removes what is in their tables; zero leaves only
// the table of versions.
func (m *Migrations) Down(ctx context.Context, db *sql.DB, to int) error {
	if to < 0 || to >= m.Newest() {
		return m.wrap(fmt.Errorf("down to %d: there are versions 0 to %d", to, m.Newest()-1))
	}
	return m.run(ctx, db, func(has int) (next, bool) {
		if has <= to {
			return next{}, false
		}
		statements := m.versions[has-1].down
		if to == 0 {
			statements = withoutBuilding(statements)
		}
		return next{version: has - 1, statements: statements, down: true}, true
	})
}

// next is a step to take, and the version to which it leads.
type next struct {
	version    int
	statements []string
	down       bool
}

// plan returns the step from the current version, or false when there is none to take.
type plan func(has int) (next, bool)

// Step is a step that has been taken and committed.
type Step struct {
	From, To int
	// Took counts from the beginning of the transaction, including the wait for another migration.
	Took time.Duration
}

type observer struct{}

// Observe returns a context for Up and Down in which f is called with each step, on their
// goroutine.
func Observe(ctx context.Context, f func(Step)) context.Context {
	return context.WithValue(ctx, observer{}, f)
}

// notify calls the function that [Observe] has put into the context.
func notify(ctx context.Context, s Step) {
	if f, ok := ctx.Value(observer{}).(func(Step)); ok {
		f(s)
	}
}

// again is the wait before another try. Its jitter spreads processes that started at the same time.
var again = backoff.Policy{Base: 20 * time.Millisecond, Cap: 500 * time.Millisecond}

// run takes steps until there is none left, and begins again after a transient error: when several
// open a new file at the same time, SQLite refuses some of them without letting them wait.
func (m *Migrations) run(ctx context.Context, db *sql.DB, p plan) error {
	for try := 0; ; try++ {
		err := m.steps(ctx, db, p)
		if try == 5 || !sqlerr.Transient(err) ||
			backoff.Sleep(ctx, again.Delay(try, 0, nil)) != nil {
			return err
		}
	}
}

// steps takes all steps. It reads the version again under the lock.
func (m *Migrations) steps(ctx context.Context, db *sql.DB, p plan) error {
	has, err := m.known(ctx, db)
	if err != nil {
		return err
	}
	if _, more := p(has); !more {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return m.wrap(err)
	}
	defer func() { _ = conn.Close() }()
	if m.engine.lock != nil {
		unlock, err := m.engine.lock(ctx, conn)
		if err != nil {
			return m.wrap(sqlerr.NeedsRight(err, toMigrate))
		}
		defer unlock()
	}
	for more := true; more; {
		if more, err = m.step(ctx, conn, p); err != nil {
			return err
		}
	}
	return nil
}

// known returns the version, which must be one that this program knows.
func (m *Migrations) known(ctx context.Context, db Queryer) (int, error) {
	has, err := m.Version(ctx, db)
	if err == nil && has > m.Newest() {
		err = &LevelError{Component: m.component, Table: m.table, Has: has, Needs: m.Newest()}
	}
	return has, err
}

// toMigrate names the rights that a role needs to apply a missing version.
const toMigrate = "CREATE in the schema, and to own the tables that it changes"

// attempt holds what a transaction under the lock of migrations has found and done.
type attempt struct {
	has  int // the version before the step
	step next
	// more reports that there is a step to take. outside reports that the step was not taken,
	// because its statements cannot run in a transaction.
	more, outside bool
}

// step applies one version in one transaction, or between two transactions.
func (m *Migrations) step(ctx context.Context, conn *sql.Conn, p plan) (more bool, err error) {
	const none = -1
	begun := time.Now()
	a, err := m.attempt(ctx, conn, p, none)
	if err == nil && a.outside {
		if err = m.failed(a.has, a.step, m.applyOutside(ctx, conn, a.step)); err == nil {
			a, err = m.attempt(ctx, conn, p, a.has)
		}
	}
	if err != nil || !a.more {
		return false, err
	}
	if !a.outside { // otherwise another process has moved the version meanwhile
		notify(ctx, Step{From: a.has, To: a.step.version, Took: time.Since(begun)})
	}
	return true, nil
}

// attempt applies and records the next step. If that step begins at version applied, its statements
// have already been run.
func (m *Migrations) attempt(ctx context.Context, conn *sql.Conn, p plan, applied int) (attempt,
	error) {
	var a attempt
	err := m.locked(ctx, conn, func(tx *sql.Tx) (err error) {
		if a.has, err = m.known(ctx, tx); err != nil {
			return err
		}
		if a.step, a.more = p(a.has); !a.more {
			return nil
		}
		if a.has == applied {
			a.step.statements = nil
		}
		if a.outside = outside(a.step.statements); a.outside {
			return nil
		}
		return m.failed(a.has, a.step, m.apply(ctx, tx, a.step))
	})
	return a, err
}

func (m *Migrations) failed(has int, step next, err error) error {
	if err == nil {
		return nil
	}
	return m.wrap(fmt.Errorf("version %d to %d: %w", has, step.version,
		sqlerr.NeedsRight(err, toMigrate)))
}

// locked runs work in a transaction, while no other migration runs.
func (m *Migrations) locked(ctx context.Context, conn *sql.Conn,
	work func(tx *sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: m.engine.isolation})
	if err != nil {
		return m.wrap(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, statement := range m.engine.before {
		if _, err := tx.ExecContext(ctx, bare(statement)); err != nil {
			return m.wrap(sqlerr.NeedsRight(err, toMigrate))
		}
	}
	if err := work(tx); err != nil {
		return err
	}
	return m.commit(tx)
}

func (m *Migrations) apply(ctx context.Context, tx *sql.Tx, step next) error {
	for _, statement := range step.statements {
		if err := m.exec(ctx, tx, statement); err != nil && !m.engine.done(err) {
			return err
		}
	}
	if m.verify != nil && !step.down {
		if err := m.verify(ctx, tx, step.version); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, bare(m.engine.record(step.version)))
	return err
}

// commit commits a transaction in which nothing has failed, even if MySQL has committed parts of it
// by itself.
func (m *Migrations) commit(tx *sql.Tx) error {
	if err := tx.Commit(); err != nil {
		return m.wrap(fmt.Errorf("commit: %w", err))
	}
	return nil
}
