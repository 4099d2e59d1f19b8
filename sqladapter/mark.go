package sqladapter

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/native"
)

// maxRounds bounds how often an insert is repeated when the row it met was deleted
// before it could be read.
const maxRounds = 3

// Mark is what a transaction has learned of one key.
type Mark struct {
	// Outcome is [dedup.Acquired] when this transaction is the first, to run the effect
	// and commit, and [dedup.Duplicate] when the effect is committed. It is [dedup.Mismatch] when
	// the key is bound to another payload, [dedup.InFlight] when the wait for another transaction
	// was cut short, and [dedup.Unknown] when nothing could be learned.
	Outcome driver.Outcome
	// At is when the stored mark was made, in UTC by the database's clock. It is zero for the first
	// with MySQL and SQL Server, whose INSERT does not return it.
	At time.Time
	// Age of the stored mark by the database's clock; zero for the first.
	Age time.Duration
	// Fingerprint that is stored; zero when the mark was made without one.
	Fingerprint driver.Fingerprint
	// Result is what [Ledger.SaveResultTx] has kept with the stored mark, for a duplicate. It is
	// nil when nothing was kept, or an empty result.
	Result []byte
	// Err says why the item may be neither run nor acknowledged: bad input, or
	// [dedup.ErrMismatch]. It is nil for Acquired and Duplicate.
	Err error

	id    driver.ID // of the row
	stamp int64     // of the row
}

// First reports whether the caller must run the effect now, in the same transaction.
func (m Mark) First() bool { return m.Outcome == dedup.Acquired }

// MarkTx records key in the caller's transaction. If [Mark.First] is true, run the
// effect in the same transaction and commit; if not, the effect is already committed
// and the message may be acknowledged. A second MarkTx of the key in one transaction is
// a duplicate of the first.
//
// It waits for another open transaction that has marked the key, as long as ctx and the database's
// lock timeout allow. It also waits for such a transaction of the same goroutine. So inside an
// effect of [Ledger.Do] mark only other keys, and in the effect's own transaction. A key bound to
// another fingerprint is [dedup.ErrMismatch], with the stored mark, and leaves the transaction
// usable. After any other error roll back: [Retryable] says whether the transaction may be run
// again. A nil transaction, a connection pool and a bad key are [*dedup.InputError]s, before any
// statement.
//
// Of the options only scope and fingerprint count; origin and label are not kept here. The
// fingerprint is an unkeyed digest, unless the caller digests a keyed hash of the payload.
//
// It takes one round trip, two for a duplicate. To check whether there is a transaction at all,
// MySQL takes two more, SQLite takes one, and on a *sql.Conn PostgreSQL takes two. A Ledger's first
// mark takes one more with PostgreSQL and MySQL, to compare the table with its [Config.IDTime].
func (m *Ledger) MarkTx(ctx context.Context, tx Tx, key string, opts ...dedup.Option) (Mark,
	error) {
	e, err := m.entry(key, opts)
	if err != nil {
		return Mark{}, err
	}
	if err := m.checkTx(tx); err != nil {
		return Mark{}, err
	}
	if err := m.checkOpen(ctx, tx); err != nil {
		mark := m.unlearnt(err)
		return mark, mark.Err
	}
	return m.mark(ctx, tx, e)
}

func (m *Ledger) mark(ctx context.Context, tx Tx, e entry) (Mark, error) {
	rows, err := m.settleBoth(ctx, tx, []entry{e}, false)
	if err == nil {
		err = m.checkIDs(ctx, tx)
	}
	if err != nil {
		mark := m.unlearnt(err)
		return mark, mark.Err
	}
	mark := judge(rows[0], e.fingerprint, rows[0].ours)
	return mark, mark.Err
}

// entry is a key that has been checked and digested.
type entry struct {
	id          driver.ID
	fingerprint driver.Fingerprint
	previous    driver.ID // in the previous table, if there is one
}

func (m *Ledger) entry(key string, opts []dedup.Option) (entry, error) {
	req, err := request(key, opts)
	if err != nil {
		return entry{}, err
	}
	return m.digest(&req)
}

func request(key string, opts []dedup.Option) (dedup.Request, error) {
	req := dedup.Request{Key: key}
	for _, opt := range opts {
		if opt == nil {
			return dedup.Request{}, inputError("Option", "is nil")
		}
		opt(&req)
	}
	return req, nil
}

func (m *Ledger) digest(req *dedup.Request) (entry, error) {
	if err := m.ready(); err != nil {
		return entry{}, err
	}
	id, err := m.ids.id(m.namespace, req.Scope, req.Key)
	e := entry{id: id, fingerprint: req.Fingerprint}
	if p := m.previous; p != nil && err == nil {
		e.previous, err = p.ids.id(p.namespace, req.Scope, req.Key)
	}
	return e, err
}

// settle inserts the entries that are absent and returns the row of each entry, whoever wrote it,
// in their order. The entries have distinct ids, in ascending order. The rows of a batch may come
// without their results: see readResults.
//
// Insert and load are two statements on purpose. In PostgreSQL one statement sees one
// snapshot: an INSERT that waited for another transaction and a SELECT next to it, in
// one WITH, would not show the other's row. The second statement has a new snapshot.
func (m *Ledger) settle(ctx context.Context, tx Tx, es []entry, batch bool) ([]*row, error) {
	found, left := make([]*row, len(es)), es
	salt := newSalt(m.dialect.salt)
	d, err := m.statements(ctx, tx)
	if err != nil {
		return nil, err
	}
	read := func(l loading) func() ([]row, error) {
		return func() ([]row, error) { return queryRows(ctx, tx, l.of(left), len(left), l.row) }
	}
	asks := []func() ([]row, error){func() ([]row, error) {
		return d.insertRows(ctx, tx, left, salt)
	}}
	if d.earlier != nil {
		asks = append(asks, read(loading{d.earlier, (*columns).loaded}))
	}
	asks = append(asks, read(d.loading(batch)))
	for range maxRounds {
		for _, ask := range asks {
			rows, err := ask()
			if err != nil {
				return nil, m.rotated(d, err)
			}
			for i := range rows {
				r := &rows[i]
				r.ours = r.ours || m.dialect.counts && r.stamp == salt
				if at, ok := find(es, r.id, i); ok {
					found[at] = r
				}
			}
			if left = missing(es, found); len(left) == 0 {
				return found, nil
			}
		}
		if d.generation > 0 {
			return nil, errOldSnapshot // nothing is ever deleted from a generation
		}
		// Retention deleted a row between the two statements: insert again.
	}
	return nil, fmt.Errorf("%w: %d marks appeared and vanished %d times", dedup.ErrUnknown,
		len(left), maxRounds)
}

// loading is a statement that returns rows, and the function that reads them.
type loading struct {
	of  func([]entry) statement
	row func(*columns, native.Rows, *row) error
}

func (d *statements) loading(batch bool) loading {
	if batch && d.apart != nil {
		return loading{d.apart, (*columns).apart}
	}
	return loading{d.load, (*columns).loaded}
}

// find returns the position of an id among entries that ascend. It looks at the position likely
// first.
func find(es []entry, id driver.ID, likely int) (int, bool) {
	if likely < len(es) && es[likely].id == id {
		return likely, true
	}
	return slices.BinarySearchFunc(es, id, func(e entry, id driver.ID) int {
		return bytes.Compare(e.id[:], id[:])
	})
}

// missing returns the entries that have no row.
func missing(es []entry, rows []*row) (left []entry) {
	for i, r := range rows {
		if r == nil {
			left = append(left, es[i])
		}
	}
	return left
}

// insertRows returns the rows that it has inserted. Where the dialect only counts them, it returns
// none when some of the rows were already there.
func (d *statements) insertRows(ctx context.Context, tx Tx, es []entry, salt int64) ([]row, error) {
	if d.counts {
		return d.insertCounted(ctx, tx, es, salt)
	}
	rows, err := queryRows(ctx, tx, d.insert(es, salt), len(es), (*columns).inserted)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if at, ok := find(es, rows[i].id, i); ok {
			rows[i].fingerprint = es[at].fingerprint
		}
	}
	return rows, nil
}

// insertCounted believes the count only when it says that all are new.
func (d *statements) insertCounted(ctx context.Context, tx Tx, es []entry,
	salt int64) ([]row, error) {
	n, err := exec(ctx, tx, d.insert(es, salt))
	if err != nil || n != int64(len(es)) {
		return nil, err
	}
	rows := make([]row, len(es))
	for i, e := range es {
		rows[i] = row{id: e.id, stamp: salt, fingerprint: e.fingerprint, ours: true}
	}
	return rows, nil
}

// judge says what a stored row means for a caller with this fingerprint.
func judge(r *row, f driver.Fingerprint, first bool) Mark {
	mark := Mark{Outcome: dedup.Duplicate, At: r.at, Age: r.age, Fingerprint: r.fingerprint,
		Result: r.result, id: r.id, stamp: r.stamp}
	switch {
	case first:
		mark.Outcome = dedup.Acquired
	case r.fingerprint.Conflicts(f):
		mark.Result = nil
		mark.Outcome, mark.Err = dedup.Mismatch, fmt.Errorf("sqladapter: %w", dedup.ErrMismatch)
	}
	return mark
}
