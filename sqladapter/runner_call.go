package sqladapter

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
)

// A savepoint after the mark lets a Runner roll back the rows of an effect without its mark. MySQL
// drops the savepoint when it ends the transaction early. Any database drops it when the effect has
// sent COMMIT.
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
	// that run was to be committed, and nothing since has shown that it was not
	landed bool
}

// work runs after a mark that is the first, which proves that no earlier try is committed.
func (c *runnerCall) work(ctx context.Context, tx transaction) error {
	c.landed = false
	q := asTx(tx)
	if err := c.patient(ctx); err != nil {
		return err
	}
	if err := execText(ctx, q, setUndo); err != nil {
		return fmt.Errorf("sqladapter: savepoint: %w", err)
	}
	value, undo, err := c.run(ctx, tx)
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

// run calls the effect, which the end of the caller's context no longer cancels, nor the bound.
func (c *runnerCall) run(ctx context.Context, tx transaction) ([]byte, bool, error) {
	if !c.left && !c.leave() || !c.bound.Stop() {
		<-ctx.Done() // the caller's end, or that of the bound, is on its way
		return nil, false, context.Cause(ctx)
	}
	c.left = true
	c.runs++
	defer c.bound.Reset(runnerBound)
	return c.effect(c.runner.attach(ctx, tx))
}

// endUndo also checks that the transaction is still that of the mark: a result that is saved in
// another transaction would be committed by itself.
func endUndo(ctx context.Context, tx Tx, undo bool) error {
	text := releaseUndo
	if undo {
		text = rollbackToUndo
	}
	err := execText(ctx, tx, text)
	if sqlerr.NoSavepoint(err) {
		return fmt.Errorf("sqladapter: %w: %w", errRolledBack, err)
	}
	if sqlerr.Ended(err) || endedByMethod(ctx, err) {
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
