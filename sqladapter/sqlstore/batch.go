package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

const (
	// chunkBytes bounds the results and steps of one statement and of one transaction: MariaDB
	// takes no packet above 16 MiB by default.
	chunkBytes = 4 << 20
	// maxTries bounds how often a transaction that keeps losing against others is run.
	maxTries = 8
)

// again spreads the tries.
var again = backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}

// errNoRow says that there is no row to lock, and one must be made first.
var errNoRow = errors.New("a row is missing")

// operation is what one call does to its keys.
type operation struct {
	id func(i int) driver.ID
	// size is how much item i writes, in bytes.
	size func(i int) int
	// creates reports whether item i makes a row where there is none. If creates is nil, no item
	// makes a row.
	creates func(i int) bool
	// fresh says that the rows are probably missing.
	fresh  bool
	decide func(i int, r *claimRow, now int64) (ans driver.Answer, write bool)
	// countsForget says that the call increments the number of Forgets.
	countsForget bool
}

// chunks splits items into transactions, in the order of their ids: two batches that lock
// the same rows in the same order do not deadlock.
func (s *Store) chunks(items []int, id func(int) driver.ID, size func(int) int) [][]int {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b int) int {
		x, y := id(a), id(b)
		return bytes.Compare(x[:], y[:])
	})
	var chunks [][]int
	from, sum := 0, 0
	for n, i := range items {
		if n-from == s.dialect.chunk() || sum > 0 && sum+size(i) > chunkBytes {
			chunks = append(chunks, items[from:n])
			from, sum = n, 0
		}
		sum += size(i)
	}
	if from < len(items) {
		chunks = append(chunks, items[from:])
	}
	return chunks
}

// peek answers the items that change nothing, from rows that it does not lock, and returns the
// others.
func (s *Store) peek(ctx context.Context, op operation, items []int,
	answers []driver.Answer) (rest []int) {
	for _, chunk := range s.chunks(items, op.id, noSize) {
		var rows map[driver.ID]*claimRow
		var now int64
		err := s.again(ctx, func(int) error {
			return s.read(ctx, func(q querier) (err error) {
				rows, now, err = s.load(ctx, q, idsOf(op, chunk), false)
				return err
			})
		})
		if err != nil {
			s.failed(ctx, err, chunk, answers)
			continue
		}
		for _, i := range chunk {
			r := rowOf(rows, op.id(i))
			if r.bad != nil {
				answers[i] = driver.Answer{Err: r.bad}
				continue
			}
			copied := *r
			ans, write := op.decide(i, &copied, now)
			if write {
				rest = append(rest, i)
				continue
			}
			answers[i] = ans
		}
	}
	return rest
}

// settle answers items from rows that it locks, and writes changed rows back.
func (s *Store) settle(ctx context.Context, op operation, items []int, answers []driver.Answer) {
	for _, chunk := range s.chunks(items, op.id, op.size) {
		err := s.again(ctx, func(try int) error {
			create := op.creates != nil && (op.fresh || try > 0)
			return s.transact(ctx, func(tx querier) error {
				return s.settleIn(ctx, tx, op, chunk, answers, create)
			})
		})
		if err != nil {
			s.failed(ctx, err, chunk, answers)
		}
	}
}

// settleIn is one transaction of settle. It first makes the rows that may be needed, so that there
// is something to lock.
func (s *Store) settleIn(ctx context.Context, tx querier, op operation, chunk []int,
	answers []driver.Answer, create bool) error {
	if create {
		made := slices.DeleteFunc(slices.Clone(chunk), func(i int) bool { return !op.creates(i) })
		if err := s.exec(ctx, tx, func() statement {
			return s.dialect.insert(idsOf(op, made))
		}, len(made)); err != nil {
			return err
		}
	}
	rows, now, err := s.load(ctx, tx, idsOf(op, chunk), true)
	if err != nil {
		return err
	}
	var changed []*claimRow
	for _, i := range chunk {
		r := rowOf(rows, op.id(i))
		switch {
		case r.bad != nil:
			answers[i] = driver.Answer{Err: r.bad}
			continue
		case rows[r.id] == nil && op.creates != nil && op.creates(i):
			return errNoRow
		}
		ans, write := op.decide(i, r, now)
		if write && !r.dirty {
			r.dirty = true
			changed = append(changed, r)
		}
		answers[i] = ans
	}
	if err := s.save(ctx, tx, changed); err != nil {
		return err
	}
	if op.countsForget {
		err = tx.exec(ctx, statement{text: s.dialect.forgot()})
	}
	return err
}

// save writes rows back. A row may hold more bytes than its item brought: the steps of a claim that
// is taken over or given back.
func (s *Store) save(ctx context.Context, tx querier, rows []*claimRow) error {
	for len(rows) > 0 {
		n, sum := 0, 0
		for ; n < min(len(rows), s.dialect.chunk()) &&
			(n == 0 || sum+rows[n].size() <= chunkBytes); n++ {
			sum += rows[n].size()
		}
		part := rows[:n]
		if err := s.exec(ctx, tx, func() statement { return s.dialect.save(part) }, n); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// quickly runs one statement for each chunk, once. It answers the items whose rows the statement
// has written, and returns the other items.
func (s *Store) quickly(
	ctx context.Context, items []int, answers []driver.Answer, id func(int) driver.ID,
	size func(int) int,
	run func(items []int) ([]*claimRow, int64, error),
	told func(i int, r *claimRow, now int64) driver.Answer,
) (rest []int) {
	for _, chunk := range s.chunks(items, id, size) {
		rows, now, err := run(chunk)
		if sqlerr.Undone(err) {
			// It lost against another transaction. The connection may be SERIALIZABLE, where that
			// can last; the transaction that follows is READ COMMITTED.
			rest = append(rest, chunk...)
			continue
		}
		if err != nil {
			s.failed(ctx, err, chunk, answers)
			continue
		}
		written := index(rows)
		for _, i := range chunk {
			r := written[id(i)]
			if r == nil {
				rest = append(rest, i)
				continue
			}
			delete(written, id(i)) // an item with the same id is answered from what it finds
			answers[i] = told(i, r, now)
		}
	}
	return rest
}

// again repeats a transaction that lost against another one and has certainly not happened.
func (s *Store) again(ctx context.Context, run func(try int) error) error {
	for try := 0; ; try++ {
		err := run(try)
		if err == nil || !sqlerr.Undone(err) && !errors.Is(err, errNoRow) {
			return err
		}
		if try+1 == maxTries {
			return fmt.Errorf("tried %d times: %w", maxTries, err)
		}
		if !errors.Is(err, errNoRow) && backoff.Sleep(ctx, again.Delay(try, 0, nil)) != nil {
			return err
		}
	}
}

func idsOf(op operation, items []int) []driver.ID {
	ids := make([]driver.ID, len(items))
	for n, i := range items {
		ids[n] = op.id(i)
	}
	return ids
}

// rowOf returns the row of a key, or an empty one, which it does not add to rows.
func rowOf(rows map[driver.ID]*claimRow, id driver.ID) *claimRow {
	if r := rows[id]; r != nil {
		return r
	}
	return &claimRow{id: id}
}

func index(rows []*claimRow) map[driver.ID]*claimRow {
	byID := make(map[driver.ID]*claimRow, len(rows))
	for _, r := range rows {
		byID[r.id] = r
	}
	return byID
}
