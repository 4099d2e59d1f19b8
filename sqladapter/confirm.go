package sqladapter

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onceward/onceward/dedup"
)

// CommitStatus is the outcome of a transaction whose COMMIT was not answered.
type CommitStatus uint8

const (
	// Undecided means that nothing was learned. Ask again, and acknowledge nothing until then.
	Undecided CommitStatus = iota
	// Committed means that the transaction is committed, mark and effect.
	Committed
	// CommittedByAnother means that it was rolled back, and that another transaction with the
	// same key is committed: the effect is done.
	CommittedByAnother
	// NotCommitted means that it was rolled back and can no longer commit, and the effect is not
	// done.
	NotCommitted
)

// Confirm reports the outcome of a transaction whose COMMIT was sent and not answered: the
// connection was lost, or the context ended. mark is what [Ledger.MarkTx] or [Ledger.MarkBatchTx]
// returned for key in that transaction, and was the first. If you can run the whole transaction
// again you need not ask; [Ledger.Do] does that by itself.
//
// It inserts the mark in a transaction of its own, on another connection, and rolls that back in
// any case. The INSERT waits while a server is still committing, or has not yet noticed that its
// client has gone; a SELECT would find no mark, and the row could appear afterwards. Its waits are
// bounded by ctx and the database's lock timeout.
//
// The answer is final. It is Undecided exactly when there is an error: [Retryable] says whether to
// ask again, and a lock timeout is [dedup.ErrInFlight]. It is right only while the mark would be
// kept: ask within the window. A mark that is not the first, or is of another key, is a
// [*dedup.InputError]. Of the options only the scope counts, as in MarkTx. It takes three round
// trips, four when the mark is there; with MySQL four more, with SQL Server two more.
func (m *Ledger) Confirm(ctx context.Context, db *sql.DB, key string, mark Mark,
	opts ...dedup.Option) (CommitStatus, error) {
	if err := m.checkDo(ctx, "db", db == nil, false); err != nil {
		return Undecided, err
	}
	return m.confirm(ctx, m.beginIn(db, m.dialect.weakest), key, mark, opts)
}

func (m *Ledger) confirm(ctx context.Context, begin beginner, key string, mark Mark,
	opts []dedup.Option) (CommitStatus, error) {
	e, err := m.entry(key, opts)
	if err != nil {
		return Undecided, err
	}
	if !mark.First() || mark.stamp == 0 {
		return Undecided, inputError("mark", "is not a first's, as MarkTx has returned it")
	}
	if mark.id != e.id { // the mark of another key says nothing about this one
		return Undecided, inputError("mark", "is of another key, scope or namespace")
	}
	tx, err := begin(ctx, nil)
	if err != nil {
		return Undecided, fmt.Errorf("sqladapter: confirm: %w", err)
	}
	defer rollback(ctx, tx)
	rows, err := m.settleBoth(ctx, tx, []entry{e}, false)
	if err == nil {
		err = m.checkIDs(ctx, tx)
	}
	if err != nil {
		return Undecided, m.unlearnt(err).Err
	}
	switch r := rows[0]; {
	case r.ours:
		return NotCommitted, nil
	case r.stamp == mark.stamp:
		return Committed, nil
	default:
		return CommittedByAnother, nil
	}
}
