package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Do makes the effect of key happen once: it begins a transaction, marks key in it, runs effect if
// the mark is the first, and commits. For a duplicate the Mark says so, the error is nil, and
// effect is not run.
//
// nil means that the effect is committed, and the message may be acknowledged. It does not say who
// committed it: after a lost COMMIT Do runs everything again, and finds the mark that this very
// call has made. So [dedup.Duplicate] means "done, by somebody or by me". If you count effects,
// count them in the transaction.
//
// Any error means: do not acknowledge, call Do again. Nothing is committed then. Only an error of
// COMMIT leaves open whether the effect is committed; the next call finds out. effect's own error
// is returned as it is, except for an error that only looks like a lost connection: see below. A
// panic of effect passes through. Both roll back. [dedup.IsPermanent] is true for a key that cannot
// be used (a [*dedup.InputError]) and for one that is bound to another payload
// ([dedup.ErrMismatch]): no retry fixes them. The Mark says what was learned of the key, and is
// Unknown where the transaction failed.
//
// When [Retryable] is true of the error of any step, effect's included, Do runs everything again
// from BEGIN, up to five times with a short backoff. So effect must write through tx alone, and
// must neither commit nor roll it back. Do does not repeat after an error for which
// [dedup.IsPermanent] is true, nor after [dedup.ErrInFlight]: the database's lock timeout says how
// long the caller wants to wait. An effect's own io.EOF, io.ErrUnexpectedEOF or net.Error, from a
// payload or a call to another system, is not a lost connection. Do asks the database, with one
// round trip, and runs everything again only when the database does not answer. Otherwise it
// returns the error, wrapped so that Retryable is false of it; errors.Is and errors.As find it.
//
// effect must not commit: with MySQL TRUNCATE, LOCK TABLES and most DDL do that by themselves. Its
// work until then is committed, and its work afterwards is not. Nor must it roll back: with
// PostgreSQL what it writes after a COMMIT or ROLLBACK of its own may be committed statement by
// statement. Do detects all that before its COMMIT, sends no COMMIT, and returns a permanent error.
// There are two exceptions. MySQL and [OpenSQLite] cannot tell a ROLLBACK that effect has sent as
// text from one of the database, so Do runs everything again, and returns a [Retryable] error in
// the end. Without OpenSQLite a COMMIT or ROLLBACK as text is the error that SQLite's own end of a
// transaction is, which is neither permanent nor Retryable. effect may use savepoints of its own.
//
// When ctx ends the transaction is rolled back, but a COMMIT that was sent gets another five
// seconds for its answer: to cancel it would leave open whether it has committed. (The five seconds
// hold where the driver's COMMIT watches its context: pgx and modernc do, go-sql-driver does not.)
//
// Scope and fingerprint of the options count, as in [Ledger.MarkTx]. The isolation level is
// [Config.Isolation]. Concurrent calls are safe. SQLite can end a transaction in the midst of an
// effect that takes no notice of an error: see [OpenSQLite]. effect must use tx, not db: with
// SQLite, or a pool that is used up, db would wait for this very transaction. Do of the same key
// and the same db inside effect, with effect's context, returns [dedup.ErrInFlight] at once: it
// would wait for itself. Do cannot detect this with another context, through another pool of the
// same database, or for [Ledger.MarkTx] in a transaction of its own: these wait until their context
// ends or the database's lock timeout expires.
//
// A server that has become read-only (SQLSTATE 25006, MySQL's 1290 and 1792), such as a demoted
// primary that has kept its connections, is [Retryable]; Do closes the idle connections of db that
// take no writes before the next try. It takes four round trips and those of effect; a duplicate
// takes four.
func (m *Ledger) Do(
	ctx context.Context, db *sql.DB, key string, effect func(ctx context.Context, tx *sql.Tx) error,
	opts ...dedup.Option,
) (Mark, error) {
	if err := m.checkDo(ctx, "db", db == nil, effect == nil); err != nil {
		return Mark{}, err
	}
	return m.doBounded(ctx, db, m.beginIn(db, m.isolation), key,
		func(ctx context.Context, tx transaction) error { return effect(ctx, ofSQL(tx)) }, opts)
}

// doBounded does the work of do, with Config.LockTimeout for the mark only, not for the effect.
func (m *Ledger) doBounded(
	ctx context.Context, db any, begin beginner, key string,
	effect func(ctx context.Context, tx transaction) error, opts []dedup.Option,
) (Mark, error) {
	begin, patient := m.impatient(begin, m.lockTimeout)
	return m.do(ctx, db, begin, key, func(ctx context.Context, tx transaction) error {
		if err := patient(ctx); err != nil {
			return err
		}
		return effect(ctx, tx)
	}, opts)
}

func (m *Ledger) do(
	ctx context.Context, db any, begin beginner, key string,
	effect func(ctx context.Context, tx transaction) error, opts []dedup.Option,
) (Mark, error) {
	e, err := m.entry(key, opts)
	if err != nil {
		err = badKey(err)
		return Mark{Err: err}, err
	}
	inside, err := m.hold(ctx, db, e)
	if err != nil {
		return Mark{Outcome: dedup.InFlight, Err: err}, err
	}
	var mark Mark
	var ended endedTries
	err = transact(ctx, begin, func(tx transaction, before error) (write bool, err error) {
		ended.note(before, mark)
		if mark, err = m.mark(ctx, tx, e); err != nil {
			return false, err
		}
		if err := ended.check(mark); err != nil {
			return false, err
		}
		if !mark.First() {
			return false, nil
		}
		watch(tx, func() statement { return m.openStatements().written(e) })
		return true, ofEffect(ctx, tx, effect(inside, tx))
	})
	switch {
	case err == nil:
		return mark, nil
	case errors.Is(err, dedup.ErrMismatch) && mark.Outcome == dedup.Mismatch:
		err = dedup.Permanent(err)
	case mark.Outcome != dedup.InFlight:
		mark = Mark{} // it was rolled back with its transaction
	}
	mark.Err = err
	return mark, err
}

// DoBatch is [Ledger.Do] for many keys in one transaction: their effects are committed
// together or not at all. effect gets the positions in keys that are first, ascending, and
// is not called when there is none. The marks are in the order of keys.
//
// One bad key does not fail the batch: its Mark carries Err, for which [dedup.IsPermanent] is true;
// the key is left out, and must not be acknowledged. A nil error of the call holds for all other
// keys. A key that occurs twice is run once, at its first position; the later ones are duplicates
// of it. An error of the call is as in Do, and no mark counts: the batch is rolled back, or a
// COMMIT was lost. To find the key that always fails, call again with each key alone.
//
// All batches mark keys in the same order. So batches that overlap wait for each other and do not
// deadlock over their marks, nor over the results that effect saves, at any isolation level. With
// MySQL and MariaDB that holds as long as none of them rolls back. A batch that deadlocks over a
// mark that was rolled back, or over the rows of its effect, is run again as in Do. An empty batch,
// and one of bad keys only, begin no transaction.
//
// The scope of the options holds for all keys; a fingerprint is a [*dedup.InputError], because it
// belongs to one payload: [Ledger.MarkBatchTx] takes one for each. It takes four round trips and
// those of effect, and one more when some keys are duplicates. With MySQL it then takes another
// one, after effect, for the results of the duplicates.
func (m *Ledger) DoBatch(
	ctx context.Context, db *sql.DB, keys []string,
	effect func(ctx context.Context, tx *sql.Tx, first []int) error, opts ...dedup.Option,
) ([]Mark, error) {
	if err := m.checkDo(ctx, "db", db == nil, effect == nil); err != nil {
		return nil, err
	}
	return m.doBatch(ctx, db, m.beginIn(db, m.isolation),
		keys, func(ctx context.Context, tx transaction, first []int) error {
			return effect(ctx, ofSQL(tx), first)
		}, opts)
}

func (m *Ledger) doBatch(
	ctx context.Context, db any, begin beginner, keys []string,
	effect func(ctx context.Context, tx transaction, first []int) error, opts []dedup.Option,
) ([]Mark, error) {
	b, err := m.batchOf(keys, opts)
	if err != nil {
		return nil, err
	}
	begin, patient := m.impatient(begin, m.lockTimeout)
	if len(b.order) == 0 {
		return b.marks, nil
	}
	inside, err := m.hold(ctx, db, b.firsts...)
	if err != nil {
		return nil, err
	}
	var ended endedTries
	err = transact(ctx, begin, func(tx transaction, before error) (write bool, err error) {
		ended.note(before, b.marks...)
		b.forget()
		if err := m.markBatch(ctx, tx, b); err != nil {
			return false, err
		}
		if err := ended.check(b.marks...); err != nil {
			return false, err
		}
		first := firsts(b.marks)
		if len(first) > 0 {
			watch(tx, func() statement { return m.openStatements().written(b.entries[first[0]]) })
			if err := patient(ctx); err != nil {
				return false, err
			}
			if err := ofEffect(ctx, tx, effect(inside, tx, first)); err != nil {
				return false, err
			}
		}
		return len(first) > 0, m.lateResults(ctx, tx, b)
	})
	if err != nil {
		return nil, err
	}
	return b.marks, nil
}

// lateResults reads the results after the effect. The transaction's snapshot can then not be older
// than its marks, so a read without locks sees every committed result. With SERIALIZABLE, where
// reads lock by themselves, the transaction waits for nobody after this read.
func (m *Ledger) lateResults(ctx context.Context, tx transaction, b *batch) error {
	if err := m.readResults(ctx, tx, b, false); err != nil {
		return m.whetherEnded(ctx, tx, err)
	}
	return nil
}

// batchOf returns the batch of these keys, under the same options.
func (m *Ledger) batchOf(keys []string, opts []dedup.Option) (*batch, error) {
	b := newBatch(len(keys))
	for i, key := range keys {
		req, err := request(key, opts)
		if err != nil {
			return nil, err
		}
		if req.Fingerprint != (driver.Fingerprint{}) {
			return nil, inputError("Option",
				"sets a fingerprint, which is of one payload, for a batch")
		}
		e, err := m.digest(&req)
		err = badKey(err)
		if err != nil && !dedup.IsPermanent(err) {
			return nil, err // every key has the same error
		}
		b.add(i, e, err)
	}
	b.sort()
	return b, nil
}

func firsts(marks []Mark) (first []int) {
	for i, mark := range marks {
		if mark.First() {
			first = append(first, i)
		}
	}
	return first
}

// checkDo refuses arguments with which no transaction can begin.
func (m *Ledger) checkDo(ctx context.Context, field string, missing, noEffect bool) error {
	switch {
	case m.ready() != nil:
		return m.ready()
	case ctx == nil:
		return inputError("ctx", "is nil")
	case missing:
		return inputError(field, "is nil")
	case noEffect:
		return inputError("effect", "is nil")
	}
	return nil
}

// badKey marks as permanent the errors that are about one message and stay with it. Bad options are
// the program's fault, and the message must not be given up for them.
func badKey(err error) error {
	var input *dedup.InputError
	if errors.As(err, &input) && input.Field == "key" {
		return dedup.Permanent(fmt.Errorf("sqladapter: %w", err))
	}
	return err
}
