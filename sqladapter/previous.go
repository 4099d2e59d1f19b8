package sqladapter

import (
	"bytes"
	"context"
	"slices"
)

// A ledger with a previous one marks in two tables, in one transaction: first in the table that it
// takes over from, then in its own. A key is first when it is new to both. Programs of three kinds
// can meet. Any two that may run at once share a table, whose index decides:
//
//   - old (only the previous table) and both: the previous table;
//   - both and new (only the new table): the new table.
//
// Old and new programs must not run at once, and a new one must not run before every mark in the
// previous table is a window old. All programs take the tables in this order, and the keys of a
// table in the order of its ids, so batches do not deadlock over marks.

// checkPrevious refuses a ledger that could not share a transaction and a way of counting with m.
func (m *Ledger) checkPrevious(cfg Config) error {
	p := cfg.Previous
	switch {
	case p == nil:
		return nil
	case p.dialect == nil:
		return inputError("Previous", "was not made by New")
	case m.dialect.takeBack == nil || p.dialect.takeBack == nil || p.name != cfg.Dialect:
		return inputError("Previous", "must be of the same Dialect, PostgreSQL or MySQL, with DeleteRows")
	case p.previous != nil:
		return inputError("Previous", "has a Previous itself; let that one end first")
	case p.table.full == m.table.full:
		return inputError("Previous", "is of the same table, "+m.table.full)
	}
	m.previous = p
	return nil
}

// settleBoth does what settle does, in the previous table and in that of m. A row of the previous
// table comes with the id that it would have in the new one. The mark of a first has the stamp of
// its row in the previous table, where [Ledger.Confirm] looks first.
func (m *Ledger) settleBoth(ctx context.Context, tx Tx, es []entry, batch bool) ([]*row, error) {
	if m.previous == nil {
		return m.settleChunks(ctx, tx, es, batch)
	}
	earlier := inPrevious(es)
	rows, err := m.previous.settleChunks(ctx, tx, earlier, batch)
	if err != nil {
		return nil, err
	}
	before, found := make([]*row, len(es)), make([]*row, len(es))
	for i, e := range es {
		at, _ := find(earlier, e.previous, i)
		before[i] = rows[at]
		if r := rows[at]; !r.ours {
			r.id, r.inPrevious = e.id, true
			found[i] = r
		}
	}
	left := missing(es, found)
	if len(left) == 0 {
		return found, nil
	}
	if rows, err = m.settleChunks(ctx, tx, left, batch); err != nil {
		return nil, err
	}
	var back []entry
	for i, r := range rows {
		at, _ := find(es, left[i].id, i)
		found[at] = r
		if r.ours {
			r.stamp, r.at = before[at].stamp, before[at].at
		} else {
			back = append(back, left[i])
		}
	}
	return found, m.takeBack(ctx, tx, inPrevious(back))
}

// takeBack deletes from the previous table the marks that this very call has made for keys that
// only the new table had. If they stayed, they would answer the next duplicate, without the result
// and the fingerprint of the first.
func (m *Ledger) takeBack(ctx context.Context, tx Tx, es []entry) error {
	for chunk := range slices.Chunk(es, m.previous.dialect.chunk) {
		s := m.previous.dialect.takeBack(chunk)
		if err := execText(ctx, tx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// settleChunks does what settle does, for any number of entries.
func (m *Ledger) settleChunks(ctx context.Context, tx Tx, es []entry,
	batch bool) (all []*row, err error) {
	if len(es) <= m.dialect.chunk {
		return m.settle(ctx, tx, es, batch)
	}
	for chunk := range slices.Chunk(es, m.dialect.chunk) {
		rows, err := m.settle(ctx, tx, chunk, batch)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// inPrevious returns the entries of the previous table, in the order of its ids.
func inPrevious(es []entry) []entry {
	before := make([]entry, len(es))
	for i, e := range es {
		before[i] = entry{id: e.previous, fingerprint: e.fingerprint}
	}
	slices.SortFunc(before, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
	return before
}
