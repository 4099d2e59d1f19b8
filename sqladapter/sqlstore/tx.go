package sqlstore

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/native"
)

// transact runs work in a transaction and commits it. After an error nothing that work has done
// remains, unless COMMIT itself was not answered.
func (s *Store) transact(ctx context.Context, work func(tx querier) error) error {
	tx, err := s.db.begin(ctx, s.dialect.isolation())
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.rollback(ctx) // after a commit it does nothing
	if begin := s.dialect.begin(); begin != "" {
		if err := tx.exec(ctx, statement{text: begin}); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
	}
	if err := work(tx); err != nil {
		return err
	}
	if err := tx.commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// read runs statements that only read. On MySQL it begins a transaction: where connections have
// autocommit off, as package sqladapter recommends, reads would leave them in a transaction with an
// old snapshot.
func (s *Store) read(ctx context.Context, work func(q querier) error) error {
	if !s.dialect.readsInTx() {
		return work(s.db)
	}
	tx, err := s.db.begin(ctx, s.dialect.isolation())
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.rollback(ctx)
	return work(tx)
}

// exec runs a statement about n rows, unless n is zero.
func (s *Store) exec(ctx context.Context, tx querier, render func() statement, n int) error {
	if n == 0 {
		return nil
	}
	return tx.exec(ctx, render())
}

// load reads the rows of some keys, and locks them if lock says so. The clock is the latest that a
// row has, or zero when there is no row.
func (s *Store) load(ctx context.Context, q querier, ids []driver.ID,
	lock bool) (map[driver.ID]*claimRow, int64, error) {
	rows, now, err := s.rows(ctx, q, func() statement { return s.dialect.load(ids, lock) })
	return index(rows), now, err
}

// rows runs a statement that returns rows of the table, each with the clock in its last column.
func (s *Store) rows(ctx context.Context, q querier, render func() statement) (list []*claimRow,
	now int64, err error) {
	rows, err := q.query(ctx, render())
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r, at, err := scanClaim(rows)
		if err != nil {
			return nil, 0, err
		}
		list, now = append(list, r), max(now, at)
	}
	// The server sends rows before it commits the statement, so they count only if there is no
	// error.
	return list, now, rows.Err()
}

// claimColumns are the columns of the table, in the order in which they are read and
// written.
var claimColumns = []string{
	"id", "token", "state", "flags", "asked", "attempt", "fence", "floor", "lease_end",
	"since", "expires", "fingerprint", "origin", "label", "steps", "result",
}

// scanClaim reads a row and the clock. An error in the row itself is kept with the row.
func scanClaim(rows native.Rows) (*claimRow, int64, error) {
	r := &claimRow{}
	var id, token, fingerprint, origin, label []byte
	var state, flags, asked, attempt, now int64
	err := rows.Scan(&id, &token, &state, &flags, &asked, &attempt, &r.fence, &r.floor, &r.leaseEnd,
		&r.since, &r.expires, &fingerprint, &origin, &label, &r.steps, &r.result, &now)
	if err != nil {
		return nil, 0, err
	}
	if len(id) != len(r.id) {
		return nil, 0, fmt.Errorf("%w: id of %d bytes", driver.ErrUnreadable, len(id))
	}
	copy(r.id[:], id)
	r.asked, r.attempt, r.label = int(asked), int(attempt), string(label)
	r.bad = r.check(state, flags)
	r.state, r.flags = driver.State(state), int(flags) // checked
	for _, part := range []struct {
		name string
		from []byte
		into []byte
	}{{"token", token, r.token[:]}, {"fingerprint", fingerprint, r.fingerprint[:]}} {
		if n := copy(part.into, part.from); part.from != nil &&
			(n != len(part.into) || n != len(part.from)) {
			r.bad = fmt.Errorf("%w: %s of %d bytes", driver.ErrUnreadable, part.name,
				len(part.from))
		}
	}
	if r.has(flagEmpty) && r.result == nil {
		r.result = []byte{}
	}
	if r.origin, err = unpackOrigin(origin); err != nil {
		r.bad = err
	}
	return r, now, nil
}
