package sqladapter

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
)

// What an effect has written can be taken back without its mark. MySQL drops the savepoint when a
// transaction ends before its time, as any database does when the effect has sent COMMIT.
const setUndo, releaseUndo, rollbackToUndo = `SAVEPOINT onceward_undo`,
	`RELEASE SAVEPOINT onceward_undo`, `ROLLBACK TO SAVEPOINT onceward_undo`

// runnerCall is one Run, and its transactions one after the other.
type runnerCall struct {
	runner *Runner
	key    string
	opts   []dedup.Option
	effect func(ctx context.Context) (result []byte, undo bool, err error)

	leave func() bool // the caller's context
	bound *time.Timer // of what is not the effect
	left  bool
	runs  int

	patient func(ctx context.Context) error // gives the transaction its own lock timeout back
	value   []byte                          // of the last run
	// that run was to be committed, and nobody has denied it since
	landed bool
}

// begin begins a transaction whose mark waits for a short time.
func (c *runnerCall) begin(ctx context.Context, before error) (transaction, error) {
	m := c.runner.marks
	tx, err := beginIn(c.runner.db, m.isolation, m.dialect.guard)(ctx, before)
	if err != nil || m.dialect.bound == nil {
		c.patient = func(context.Context) error { return nil }
		return tx, err
	}
	if c.patient, err = m.dialect.bound(ctx, tx, c.runner.timeout); err != nil {
		rollback(ctx, tx)
		return nil, err
	}
	return tx, nil
}

// work is what follows the first mark. Whoever is first here knows that no earlier try is
// committed.
func (c *runnerCall) work(ctx context.Context, tx transaction) error {
	c.landed = false
	q := ofSQL(tx)
	if err := c.patient(ctx); err != nil {
		return fmt.Errorf("sqladapter: lock timeout: %w", err)
	}
	if _, err := q.ExecContext(ctx, setUndo); err != nil {
		return fmt.Errorf("sqladapter: savepoint: %w", err)
	}
	value, undo, err := c.run(ctx, q)
	if err != nil {
		return err
	}
	if err := endUndo(ctx, q, undo); err != nil {
		return err
	}
	unwatch(tx)         // endUndo has seen that it is the same
	if len(value) > 0 { // an empty one comes back as none
		if err := c.runner.marks.SaveResultTx(ctx, q, c.key, value, c.opts...); err != nil {
			return err
		}
	}
	c.value, c.landed = value, true
	return nil
}

// run has the effect, which its caller's end does not reach any more.
func (c *runnerCall) run(ctx context.Context, tx *sql.Tx) ([]byte, bool, error) {
	if !c.left && !c.leave() {
		<-ctx.Done() // the caller's end is on its way
		return nil, false, context.Cause(ctx)
	}
	c.left = true
	c.runs++
	c.bound.Stop()
	defer c.bound.Reset(runnerBound)
	return c.effect(context.WithValue(ctx, txKey{}, tx))
}

// endUndo also finds out whether the transaction is still that of the mark: a result that is saved
// in another one would be committed by itself.
func endUndo(ctx context.Context, tx *sql.Tx, undo bool) error {
	text := releaseUndo
	if undo {
		text = rollbackToUndo
	}
	_, err := tx.ExecContext(ctx, text)
	if sqlerr.NoSavepoint(err) {
		return fmt.Errorf("sqladapter: %w: %w", errRolledBack, err)
	}
	if sqlerr.Ended(err) {
		return fmt.Errorf("sqladapter: %w", effectEnded(err))
	}
	if endedEarly(err) {
		return fmt.Errorf("sqladapter: %w: %w", errEndedEarly, err)
	}
	if err != nil {
		return fmt.Errorf("sqladapter: savepoint: %w", err)
	}
	return nil
}

// A bounder bounds how long the statements of a transaction wait for locks, and returns what takes
// the bound back.
type bounder func(ctx context.Context, tx transaction,
	limit time.Duration) (back func(ctx context.Context) error, err error)

// postgresBound sets what ends with the transaction, whatever becomes of that. What it was is read
// in the same round trip, and before: the list of a SELECT is made from the rows below it.
func postgresBound(ctx context.Context, tx transaction,
	limit time.Duration) (func(context.Context) error, error) {
	millis := strconv.FormatInt(ceil(limit, time.Millisecond), 10)
	var was, now string
	err := scanOne(ctx, tx,
		`WITH old AS MATERIALIZED (SELECT current_setting('lock_timeout') AS setting)`+
			` SELECT setting, set_config('lock_timeout', '`+millis+`', true) FROM old`, &was, &now)
	return func(ctx context.Context) error {
		_, err := ofSQL(tx).ExecContext(ctx, `SELECT set_config('lock_timeout', $1, true)`, was)
		return err
	}, err
}

const (
	rowWait     = `SET @onceward_lock_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = `
	rowWaitBack = `SET innodb_lock_wait_timeout = @onceward_lock_wait`
)

// mysqlBound sets what stays with the connection, so a transaction that ends before the bound is
// taken back takes it back, or has its connection closed.
func mysqlBound(ctx context.Context, tx transaction,
	limit time.Duration) (func(context.Context) error, error) {
	g := tx.(*guardedTx) //nolint:errcheck,forcetypeassert // beginIn makes no other for MySQL
	g.back = rowWaitBack
	_, err := g.ExecContext(ctx,
		rowWait+strconv.FormatFloat(math.Ceil(limit.Seconds()), 'f', 0, 64))
	return func(ctx context.Context) error {
		_, err := g.ExecContext(ctx, rowWaitBack)
		if err == nil {
			g.back = ""
		}
		return err
	}, err
}
