package sqladapter

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Lookup reads the committed mark of key, for operators and tests; found is false when
// there is none. It takes a transaction or a connection pool, changes nothing and waits
// for nobody. So "not found" is not a promise: a transaction may be about to commit the
// mark. Only [Ledger.MarkTx] decides. The Outcome of a found mark is Duplicate, or
// Mismatch when a fingerprint is given and conflicts. It takes one round trip, three on a pool of
// MySQL.
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
		return Mark{}, false, m.unlearnt(err).Err
	}
	if len(rows) == 0 {
		return Mark{}, false, nil
	}
	mark = judge(&rows[0], e.fingerprint, false)
	return mark, true, nil
}

// RecordedIDTime returns the [Config.IDTime] and [Config.SnowflakeEpoch] for which the table of m
// was made, whatever those of m are. It is for tools that look into the tables of other programs:
// they need a Ledger with these two values. kind is zero where ids are digests. It takes one round
// trip, three on a pool of MySQL, and none with [SQLite] and [Generations], where all ids are
// digests.
func (m *Ledger) RecordedIDTime(ctx context.Context, q Tx) (kind IDTime, epoch time.Time,
	err error) {
	if err := m.ready(); err != nil {
		return 0, time.Time{}, err
	}
	if isNil(q) {
		return 0, time.Time{}, inputError("q", "is nil")
	}
	if m.dialect.ids == "" {
		return 0, time.Time{}, nil
	}
	var text string
	err = m.alone(ctx, q, func(q Tx) (err error) {
		text, err = m.recordedIDs(ctx, q)
		return err
	})
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("sqladapter: %w", m.notMigrated(err))
	}
	form, ok := parseIDForm(text)
	if !ok {
		return 0, time.Time{}, fmt.Errorf("sqladapter: table %s has been made for ids of the form %q,"+
			" which this version does not know; use a newer one", m.table.full, text)
	}
	if form.kind == Snowflake {
		epoch = time.UnixMilli(form.epoch)
	}
	return form.kind, epoch, nil
}
