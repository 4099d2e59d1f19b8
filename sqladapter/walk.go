package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// DeleteExpired walks over a table without an index by age. A pass reads all of it in a quarter of
// the window, in slices of one transaction each. The position of the pass is in the row of _meta,
// which a slice locks. So one process walks at a time, and any process may take the next slice. A
// process that dies leaves the position of the last slice that was committed.
//
// The position says only from where to read on. The statement that deletes a mark checks its age,
// or the walk checks it under the mark's lock. By then another mark may be where the old one was,
// because a vacuum has freed the place, or because the key was marked again.
//
// Age counts back from the newest mark. The walk knows only the newest mark that it has seen so
// far, which may be older than the newest of all. So it deletes later, never earlier.

// passes is how many passes there are in a window.
const passes = 4

// pass is the state of a walk over the table, as the row of _meta has it.
type pass struct {
	window int64 // ms, the longer of the recorded one and the Ledger's
	begun  int64 // ms, by the database's clock
	now    int64 // ms: the earlier of the database's clock and this process's
	newest int64 // ms: the newest mark that was seen, at most now
	// walked is how much of the table the pass has walked, from 0 to 1.
	walked float64

	page, pages int64  // PostgreSQL: the next page, and how many there are now
	file        int64  // PostgreSQL: the file to which the pages belong
	after       []byte // MySQL: the last id that was walked
	last        []byte // MySQL: the last id of the next slice
	rows        int64  // MySQL: the number of marks in it
	// MySQL, for ids that carry their time: how many marks the pass has walked, and how many there
	// are by the server's estimate
	counted, total int64
}

// cut returns the instant in ms before which marks are old.
func (p *pass) cut() int64 { return max(0, p.newest-p.window) }

// due reports whether the pass has walked no more than it should have by now. A pass that has just
// begun is due, so each call walks a small table.
func (p *pass) due() bool {
	return p.walked <= float64(p.now-p.begun)/float64(p.window)*passes
}

// again begins the next pass.
func (p *pass) again() {
	p.begun, p.walked, p.page, p.after, p.counted = p.now, 0, 0, nil, 0
}

// walker walks over one table. Its statements are in the transaction of a slice.
type walker interface {
	// lock locks the row of _meta and reads it; sql.ErrNoRows says that another process has locked
	// it, errByIndex that the server needs an index by age.
	lock(ctx context.Context, tx *sql.Tx) (*pass, error)
	// slice deletes at most limit marks of the next slice with their results, and moves p past the
	// slice when no old mark is left in it.
	slice(ctx context.Context, tx *sql.Tx, p *pass, limit int64) (deleted int64, err error)
	// save writes the row of _meta.
	save(ctx context.Context, tx *sql.Tx, p *pass) error
}

// errByIndex says that the table keeps its index by age.
var errByIndex = errors.New("the server cannot read a table page by page")

// walk takes slices until limit marks are deleted, or the pass is as far as it should be. It
// returns how many it has deleted, even with an error.
func (m *Ledger) walk(ctx context.Context, db *sql.DB, w walker, limit int64) (deleted int64,
	err error) {
	for more := true; more && deleted < limit && err == nil; {
		var n int64
		n, more, err = m.walkSlice(ctx, db, w, limit-deleted)
		deleted += n
	}
	return deleted, err
}

// walkSlice walks one slice in one transaction. more says that the next slice is due.
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
		return 0, false, nil // another process is walking
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

// begin completes the state that was read. When the database's clock jumps ahead nothing becomes
// old: the process's clock has to agree. A pass whose recorded begin is in the future begins now.
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
