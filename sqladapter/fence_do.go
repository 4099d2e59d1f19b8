package sqladapter

import (
	"context"
	"database/sql"
	"errors"
)

// Do makes the effects of the messages in [from, to) of a position happen once: it begins a
// transaction, moves the fence in it, runs effect for what is left, and commits. effect handles the
// messages from start on; when nothing is left it is not run.
//
// nil means that the effects of all of [from, to) are committed, and the messages may be
// acknowledged. Any error means: do not acknowledge, call Do again. Nothing is committed then. Only
// an error of COMMIT leaves open whether the effects are committed; the next call finds out.
// effect's own error is returned as it is; a panic of effect passes through. Both roll back.
//
// When [Retryable] is true of the error of any step, effect's included, Do runs everything again
// from BEGIN, up to five times with a short backoff. So effect must write through tx alone, and
// must neither commit nor roll it back. After a lost COMMIT Do finds the fence that it has moved
// itself, and answers that nothing was left. It does not repeat after an error for which
// [dedup.IsPermanent] is true, nor after [dedup.ErrInFlight]: the database's lock timeout says how
// long the caller wants to wait. An effect's own io.EOF or net.Error is not a lost connection, as
// in [Ledger.Do]. When ctx ends the transaction is rolled back, but a COMMIT that was sent gets
// another five seconds for its answer. effect must not run statements that commit by themselves in
// MySQL, as in [Ledger.Do].
//
// The isolation level is [FenceConfig.Isolation]. Concurrent calls are safe. effect must use tx,
// not db, as in [Ledger.Do]. It may also call [Ledger.MarkBatchTx] with tx, for keys of its own.
// Do of the same position and the same db inside effect, with effect's context, is
// [dedup.ErrInFlight] at once, as in [Ledger.Do]. It takes four round trips (MySQL: eight) and
// those of effect.
func (f *Fence) Do(
	ctx context.Context, db *sql.DB, p Position, from,
	to int64, effect func(ctx context.Context, tx *sql.Tx, start int64) error,
) (Advance, error) {
	span := Span{Position: p, From: from, To: to}
	if err := f.checkDo(ctx, "db", db == nil, span, effect == nil); err != nil {
		return Advance{}, err
	}
	return f.do(ctx, db, beginIn(db, f.isolation, f.statements.guard), span,
		func(ctx context.Context, tx transaction, start int64) error {
			return effect(ctx, ofSQL(tx), start)
		})
}

func (f *Fence) do(ctx context.Context, db any, begin beginner, span Span,
	effect func(ctx context.Context, tx transaction, start int64) error) (Advance, error) {
	p, to := span.Position, span.To
	inside, err := hold(ctx, db, f.table+"\x00"+f.group, p)
	if err != nil {
		return Advance{}, err
	}
	var found Advance
	err = transact(ctx, begin,
		func(tx transaction, before error) (write bool, err error) {
			stored, err := f.advance(ctx, tx, []Span{span})
			if err != nil {
				return false, err
			}
			found = span.found(stored)
			switch {
			case found.Start < to:
				watch(tx, func() statement { return f.of(f.statements.written, p) })
				return true, ofEffect(ctx, tx, effect(inside, tx, found.Start))
			case errors.Is(before, errRolledBack):
				// or another owner has moved the fence meanwhile, which the next call finds out
				return false, errCommittedItself
			}
			return false, nil // the rollback gives the row's lock back
		})
	if err != nil {
		return Advance{}, err
	}
	return found, nil
}

func (f *Fence) checkDo(ctx context.Context, field string, missing bool, span Span,
	noEffect bool) error {
	if err := f.ready(); err != nil {
		return err
	}
	switch {
	case ctx == nil:
		return inputError("ctx", "is nil")
	case missing:
		return inputError(field, "is nil")
	case noEffect:
		return inputError("effect", "is nil")
	}
	return span.check()
}
