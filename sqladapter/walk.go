package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// A table without an index by age is walked. A pass reads all of it in a quarter of the window, in
// slices of one transaction each. Where the pass stands is in the row of _meta, which a slice
// locks. So one process walks at a time, and any may take the next slice. A process that dies
// leaves the position of the last slice that was committed.
//
// The position says only from where to read on. Whether a mark is old is decided by its own age, in
// the statement that deletes it, or under its lock. By then another mark may be where the old one
// was, because a vacuum has freed the place, or because the key was marked again.
//
// Age counts back from the newest mark. The walk knows it from below: the newest that it has seen
// so far. So it deletes later, never earlier.

// passes is how many of them there are in a window.
const passes = 4

// pass is the walk over the table, as the row of _meta has it.
type pass struct {
	window int64 // ms, the one on record or the Ledger's
	begun  int64 // ms, by the database's clock
	now    int64 // ms: the earlier of the database's clock and this process's
	newest int64 // ms: the newest mark that was seen, at most now
	// walked is how much of the table the pass has walked, from 0 to 1.
	walked float64

	page, pages int64  // of PostgreSQL: the next, and how many there are now
	file        int64  // of PostgreSQL: what the pages are of
	after       []byte // of MySQL: the last id that was walked
	last        []byte // of MySQL: the last id of the next slice
	rows        int64  // of MySQL: the marks in it
	// of MySQL, for ids that carry their time: how many marks the pass has walked, and how many
	// there are, as the server estimates it
	counted, total int64
}

// cut is the instant in ms before which marks are old.
func (p *pass) cut() int64 { return max(0, p.newest-p.window) }

// due reports whether the pass has not walked more than it should have by now. A pass that has just
// begun is due, so a small table is walked by each call.
func (p *pass) due() bool {
	return p.walked <= float64(p.now-p.begun)/float64(p.window)*passes
}

// again begins the next pass.
func (p *pass) again() {
	p.begun, p.walked, p.page, p.after, p.counted = p.now, 0, 0, nil, 0
}

// walker walks over one table. Its statements are in the transaction of a slice.
type walker interface {
	// lock takes the row of _meta and reads it; sql.ErrNoRows says that another process has it,
	// errByIndex that the server needs an index by age.
	lock(ctx context.Context, tx *sql.Tx) (*pass, error)
	// slice deletes at most limit marks of the next slice with their results, and moves p past the
	// slice when no old mark is left in it.
	slice(ctx context.Context, tx *sql.Tx, p *pass, limit int64) (deleted int64, err error)
	// save writes the row of _meta.
	save(ctx context.Context, tx *sql.Tx, p *pass) error
}

// errByIndex says that the table keeps its index by age.
var errByIndex = errors.New("the server cannot read a table page by page")

// walk takes slices until limit marks are deleted, or the pass is where it should be. It returns
// how many are deleted, also with an error.
func (m *Ledger) walk(ctx context.Context, db *sql.DB, w walker, limit int64) (deleted int64,
	err error) {
	for more := true; more && deleted < limit && err == nil; {
		var n int64
		n, more, err = m.walkSlice(ctx, db, w, limit-deleted)
		deleted += n
	}
	return deleted, err
}

// walkSlice is one transaction. more says that the next slice is due.
func (m *Ledger) walkSlice(ctx context.Context, db *sql.DB, w walker,
	limit int64) (deleted int64, more bool, err error) {
	tx, release, err := dialect.BeginAt(ctx, db, m.dialect.weakest)
	if err != nil {
		return 0, false, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	defer release()
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	p, err := w.lock(ctx, tx)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil // another process is at it
	}
	if err == nil {
		if p.begin(m.window); !p.due() {
			return 0, false, nil
		}
		if deleted, err = w.slice(ctx, tx, p, limit); err == nil {
			if more = p.due(); p.walked >= 1 {
				p.again()
				more = false
			}
			if err = w.save(ctx, tx, p); err == nil {
				err = tx.Commit()
			}
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	return deleted, more, nil
}

// begin completes what was read. A database's clock that has jumped ahead makes nothing old: the
// process's has to agree. A pass that was begun by a clock that was ahead begins now.
func (p *pass) begin(window time.Duration) {
	if window > 0 {
		p.window = max(p.window, windowMillis(window))
	}
	p.now = min(p.now, time.Now().UnixMilli())
	if p.begun == 0 || p.begun > p.now {
		p.begun = p.now
	}
	p.newest = min(p.newest, p.now)
	if p.walked >= 1 { // the table has shrunk
		p.again()
	}
}
