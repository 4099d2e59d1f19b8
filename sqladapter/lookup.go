package sqladapter

import (
	"context"

	"github.com/onceward/onceward/dedup"
)

// Lookup reads the committed mark of key, for operators and tests; found is false when
// there is none. It takes a transaction or a connection pool, changes nothing and waits
// for nobody. So "not found" is not a promise: a transaction may be about to commit the
// mark. Only [Ledger.MarkTx] decides. The Outcome of a found mark is Duplicate, or
// Mismatch when a fingerprint is given and conflicts. One round trip, three on a pool of MySQL.
func (m *Ledger) Lookup(ctx context.Context, q Tx, key string, opts ...dedup.Option) (mark Mark,
	found bool, err error) {
	e, err := m.entry(key, opts)
	if err != nil {
		return Mark{}, false, err
	}
	if isNil(q) {
		return Mark{}, false, inputError("q", "is nil")
	}
	var rows []row
	err = m.alone(ctx, q, func(q Tx) (err error) {
		if err = m.checkIDs(ctx, q); err != nil {
			return err
		}
		rows, err = queryRows(ctx, q, m.dialect.peek([]entry{e}), 1, (*columns).loaded)
		if p := m.previous; p != nil && err == nil && len(rows) == 0 {
			rows, err = queryRows(ctx, q, p.dialect.peek(inPrevious([]entry{e})), 1,
				(*columns).loaded)
		}
		return err
	})
	if err != nil {
		return Mark{}, false, unlearnt(err).Err
	}
	if len(rows) == 0 {
		return Mark{}, false, nil
	}
	mark = judge(rows[0], e.fingerprint, false)
	return mark, true, nil
}
