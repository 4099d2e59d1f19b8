package sqladapter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/sqlerr"
)

// runnerLockTimeout is the LockTimeout of a Runner whose Config sets none.
const runnerLockTimeout = time.Second

const (
	// runnerBound is how long the transaction of a Runner may take before its effect, and again
	// after it.
	runnerBound = 30 * time.Second
)

var errRunnerBound = fmt.Errorf("%w: the database has not answered within %v", dedup.ErrUnknown,
	runnerBound)

// Runner makes the effect of a key happen once, and keeps its result: record, effect and result are
// one transaction, at level Atomic. It is an httpadapter.Runner. Make it with [Ledger.Runner], one
// for a table; it starts no goroutine that outlives a call, and is safe for concurrent use.
type Runner struct {
	marks   *Ledger
	db      any // tells databases apart
	begin   beginner
	timeout time.Duration
	// attach puts the transaction into the context of an effect.
	attach  func(ctx context.Context, tx transaction) context.Context
	running sync.Map // driver.ID, of the calls that run
}

// Runner returns a Runner that runs effects in transactions of db, for PostgreSQL, MySQL and
// MariaDB, and SQLite. It sends nothing; see [Ledger.Migrate]. A nil db and a ledger of SQL Server
// are a [*dedup.InputError].
func (m *Ledger) Runner(db *sql.DB) (*Runner, error) {
	if err := m.ready(); err != nil {
		return nil, err
	}
	if m.dialect.begin != nil {
		return nil, inputError("Dialect", "is SQL Server, which a Runner is not for")
	}
	if db == nil {
		return nil, inputError("db", "is nil")
	}
	return m.newRunner(&Runner{db: db, begin: m.beginIn(db, m.isolation),
		attach: func(ctx context.Context, tx transaction) context.Context {
			return context.WithValue(ctx, txKey{}, ofSQL(tx))
		}}), nil
}

// newRunner completes a runner that can begin transactions.
func (m *Ledger) newRunner(r *Runner) *Runner {
	r.marks, r.timeout = m, cmp.Or(m.lockTimeout, runnerLockTimeout)
	return r
}

// Namespace is [Config.Namespace], to which the keys belong.
func (r *Runner) Namespace() string { return r.marks.namespace }

// Window is [Config.Window]: how long a key is remembered, at least. 0 means forever.
func (r *Runner) Window() time.Duration { return r.marks.window }

// ResultLimit is [Config.ResultLimit], in bytes.
func (r *Runner) ResultLimit() int { return r.marks.limit }

// Atomic returns true: a key that is released leaves nothing behind, and effect must not use Step
// and MarkIrreversible of package dedup.
func (*Runner) Atomic() bool { return true }

// txKey is the context key of an effect's transaction.
type txKey struct{}

// TxFrom returns the transaction of the effect of a [Runner] that runs under ctx. Everything that
// is written through it is committed with the record, or not at all. Neither commit it nor roll it
// back, and do not use it after the effect has returned. A row that is written through the pool, or
// through another connection, is not in one transaction with the record: it stays when the effect
// is rolled back, and is written again when the effect runs again. TxFrom returns false when ctx is
// not that of an effect.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// Run calls effect unless the key is done, in a transaction that [TxFrom] finds in effect's
// context, keeps its result there, and commits. effect must write through that transaction, and
// never through the pool: only what is in the transaction happens once. The Result has the outcome
// Acquired and effect's own value, or Duplicate and the value that is stored: nil where it is
// empty, or where the key was marked without one.
//
// When effect returns undo, Run keeps the result and rolls back everything else that effect has
// written, to a savepoint that it sets after the mark. An error of effect rolls back everything and
// is returned as it is. So is an error of [dedup.Permanent], which is not stored here. A panic
// rolls back everything, too, and continues. A result of more than ResultLimit bytes is a
// [*dedup.InputError], and rolls the effect back as well.
//
// Of the concurrent calls of one key, one runs. In the same Runner the others return
// [dedup.ErrInFlight] at once, without a connection, even inside the effect of that key. In another
// process they return it after [Config.LockTimeout]. Record.Remaining is zero then: there is no
// lease, and no way to wait for the other's answer, so ask again. SQLite has one writer for all
// keys: a file that is busy for longer than its busy_timeout is an error for which [Retryable] is
// true. So an effect must not Run another key there. Open the file with [OpenSQLite], or return the
// first error of a statement: see the package.
//
// It runs again after the same errors as [Ledger.Do], up to five times. So effect may run several
// times, one after the other, and must write through the transaction alone. It must not use the
// statements that Do forbids (COMMIT, and with MySQL TRUNCATE, LOCK TABLES and DDL). A timeout
// inside effect, such as the Timeout of package httpadapter, begins anew with each run. Nothing
// counts the calls that have failed: an error that comes back each time is returned each time.
// After a lost COMMIT the record decides: the outcome is then Duplicate, with the result of this
// very call or of another one. If the record cannot be read either, [dedup.OutcomeUnknown] is true
// of the error, and the Result has effect's value. The same is true after every other error of
// COMMIT that does not prove that nothing is committed.
//
// Until effect begins, Run ends with ctx. From then on only the values of ctx count: the end of ctx
// cancels neither effect's context nor COMMIT. Set a timeout inside effect; Run has one of 30 s
// before effect and another after it.
//
// A key bound to another fingerprint is [dedup.ErrMismatch]. Scope and fingerprint of the options
// count. A nil effect or ctx, and a bad key, are a [*dedup.InputError]. Attempt counts the runs of
// effect in this call, and is 1 for a duplicate: attempts that were rolled back leave no trace.
// It takes eight round trips and those of effect (MySQL twelve); a duplicate takes five (MySQL
// nine).
func (r *Runner) Run(
	ctx context.Context, key string,
	effect func(ctx context.Context) (result []byte, undo bool, err error), opts ...dedup.Option,
) (dedup.Result[[]byte], error) {
	var none dedup.Result[[]byte]
	if r == nil || r.marks == nil {
		return none, inputError("Runner", "is nil or was not made by Ledger.Runner")
	}
	if err := r.marks.checkDo(ctx, "db", r.begin == nil, effect == nil); err != nil {
		return none, err
	}
	e, err := r.marks.entry(key, opts)
	if err != nil {
		return none, err
	}
	if _, running := r.running.LoadOrStore(e.id, nil); running {
		return inFlight(), fmt.Errorf("sqladapter: %w: it runs in this process", dedup.ErrInFlight)
	}
	defer r.running.Delete(e.id)

	left, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	leave := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer leave()
	bound := time.AfterFunc(runnerBound, func() { cancel(errRunnerBound) })
	defer bound.Stop()
	c := &runnerCall{runner: r, key: key, opts: opts, effect: effect, leave: leave, bound: bound}
	begin, patient := r.marks.impatient(r.begin, r.timeout)
	c.patient = patient
	mark, err := r.marks.do(left, r.db, begin, key, c.work, opts)
	return c.answer(mark, err)
}

func inFlight() dedup.Result[[]byte] {
	return dedup.Result[[]byte]{Outcome: dedup.InFlight,
		Record: dedup.Record{State: driver.StateInProgress}}
}

// answer turns the outcome of the transaction into the Result of the call.
func (c *runnerCall) answer(mark Mark, err error) (dedup.Result[[]byte], error) {
	switch {
	case err == nil && mark.First():
		return dedup.Result[[]byte]{Value: c.value, Outcome: dedup.Acquired, Attempt: c.runs}, nil
	case err == nil:
		return dedup.Result[[]byte]{Value: mark.Result, Outcome: dedup.Duplicate, Attempt: 1,
			Record: c.record(mark)}, nil
	case mark.Outcome == dedup.Mismatch:
		// The error is not Permanent, because Permanent is about the failure of an effect.
		return dedup.Result[[]byte]{Outcome: dedup.Mismatch, Record: c.record(mark)},
			fmt.Errorf("sqladapter: %w", dedup.ErrMismatch)
	case c.landed && !undone(err):
		return dedup.Result[[]byte]{Value: c.value, Outcome: dedup.Unknown, Attempt: c.runs},
			fmt.Errorf("sqladapter: %w: %w", dedup.ErrUnknown, err)
	case mark.Outcome == dedup.InFlight:
		return inFlight(), err
	default:
		return dedup.Result[[]byte]{Outcome: dedup.Unknown, Attempt: c.runs}, err
	}
}

func (c *runnerCall) record(mark Mark) dedup.Record {
	rec := dedup.Record{State: driver.StateSucceeded, Fingerprint: mark.Fingerprint, Attempt: 1,
		Result: mark.Result, Age: mark.Age}
	if w := c.runner.marks.window; w > 0 {
		rec.Remaining = max(0, w-mark.Age)
	}
	return rec
}

// undone reports whether err proves that nothing is committed. err is of a try that was to send
// COMMIT, or of a later one. An unknown error proves nothing.
func undone(err error) bool {
	var sent *commitFailed
	if errors.As(err, &sent) {
		return sqlerr.Undone(sent) || sqlerr.Violated(sent)
	}
	return errors.Is(err, errNotSent) || errors.Is(err, errRolledBack)
}
