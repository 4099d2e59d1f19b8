package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// DeleteExpired deletes at most limit marks that are older than the table's window, with their
// results, and returns how many. Call it from time to time, such as once a minute, and again at
// once while it returns limit. A limit of 1000 keeps each statement within a few milliseconds.
// Several processes may call it at once.
//
// With PostgreSQL 14 and newer, and with MySQL and MariaDB, the table has no index by age, and
// DeleteExpired walks over it. It reads slices of 64 pages, or of 2000 marks, one transaction each,
// and finishes a pass in a quarter of the window. A call reads the slices that are due by then, and
// always reads all of a table of one slice. The position of the pass is on record in the database,
// so it does not matter which process calls, or how often. While one process reads a slice, the
// calls of others return zero. A mark is deleted when it is older than the window, and at the
// latest when it is one and a quarter windows old. Where new marks are rare this can be a little
// later, because the walk knows the age of the newest mark only from the marks that it has read.
// With SQLite and older servers DeleteExpired deletes the oldest mark first, by the index; a mark
// may outlive the window by two seconds.
//
// All namespaces of a table share its window: the one on record ([Ledger.Migrate] raises it,
// [Ledger.SetWindow] sets it), or Config.Window if that is longer. No mark is deleted before that
// window has passed.
//
// Age is counted back from the newest mark of the table, not from the present. So when the
// consumers were down for longer than the window, the marks that they will need for redelivered
// messages are still there. A table that gets no more marks keeps its last window forever. A mark
// from the future, left by a wrong clock, counts as one made now. A mark that was made while the
// database's clock was behind looks older than it is by that much, and is deleted that much
// earlier. When the database's clock jumps ahead nothing becomes old: the present is the earlier of
// the database's clock and this process's. A process whose own clock is behind deletes later by as
// much.
//
// It is an error when limit is below 1, when Config.Window is zero, when the table's recorded
// window is forever, when the table is partitioned, and with [Generations]. Even with an error it
// returns how many marks it has deleted. It takes six round trips with PostgreSQL and one slice,
// more elsewhere.
func (m *Ledger) DeleteExpired(ctx context.Context, db *sql.DB, limit int) (int64, error) {
	switch {
	case m.ready() != nil:
		return 0, m.ready()
	case db == nil:
		return 0, inputError("db", "is nil")
	case limit < 1:
		return 0, inputError("limit", fmt.Sprintf("must be at least 1, is %d", limit))
	case m.retention != DeleteRows:
		return 0, inputError("Retention", "is "+m.retention.text()+"; call Rotate")
	case m.window == 0:
		return 0, inputError("Window", "is zero, which keeps marks forever")
	}
	window, err := m.enforcedWindow(ctx, db)
	if err != nil {
		return 0, err
	}
	if w := m.dialect.walker; w != nil {
		deleted, err := m.walk(ctx, db, w, int64(limit))
		if !errors.Is(err, errByIndex) {
			return deleted, err
		}
	}
	return m.expire(ctx, db, window, int64(limit))
}

// enforcedWindow returns the longer of the recorded window and Config.Window.
func (m *Ledger) enforcedWindow(ctx context.Context, db *sql.DB) (time.Duration, error) {
	window, err := m.recordedWindow(ctx, db)
	if err != nil {
		return 0, err
	}
	if window >= recordedForever {
		return 0, inputError("Window",
			fmt.Sprintf("of %s is on record as forever, and %v here; SetWindow shortens it",
				m.table.full, m.window))
	}
	return max(window, m.window), nil
}

// expire deletes marks and their results in one transaction, the oldest first. It finds them by an
// index by age.
func (m *Ledger) expire(ctx context.Context, db *sql.DB, window time.Duration,
	limit int64) (int64, error) {
	tx, release, err := dialect.BeginAt(ctx, db, m.dialect.weakest)
	if err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	defer release()
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	var now int64
	if err := scanOne(ctx, tx, m.dialect.clock, &now); err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	// If the database's clock has jumped ahead, fresh marks would look old. So the window is longer
	// by as much as that clock is ahead of this process's.
	window += max(0, time.Duration(now-time.Now().UnixMilli())*time.Millisecond)
	ticks := ceil(window, m.dialect.tick)
	rows, err := queryRows(ctx, tx, statement{m.dialect.expire, []any{ticks, limit}},
		int(min(limit, forgetAtOnce)), (*columns).idAlone)
	if err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	if err := forgetRows(ctx, tx, rows, m.dialect.forget); err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("sqladapter: delete expired: %w", err)
	}
	return int64(len(rows)), nil
}

// forgetAtOnce bounds the text of a statement to about 40 KB. With 1000 values or more MariaDB
// would read all of the table.
const forgetAtOnce = 900

// forgetRows deletes rows that are locked, with the statements that forget returns.
func forgetRows(ctx context.Context, tx *sql.Tx, rows []row, forget func([]entry) []string) error {
	gone := make([]entry, len(rows))
	for i, r := range rows {
		gone[i].id = r.id
	}
	for chunk := range slices.Chunk(gone, forgetAtOnce) {
		for _, text := range forget(chunk) {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Ledger) recordedWindow(ctx context.Context, db *sql.DB) (time.Duration, error) {
	var millis int64
	err := m.alone(ctx, db, func(q Tx) error { return scanOne(ctx, q, m.dialect.window, &millis) })
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("sqladapter: %s has no window on record; call Migrate", m.table.full)
	case err != nil:
		return 0, fmt.Errorf("sqladapter: window of %s: %w", m.table.full, m.notMigrated(err))
	}
	return time.Duration(min(millis, forever)) * time.Millisecond, nil
}

// recordedForever is what recordedWindow returns for a window that never ends.
const recordedForever = time.Duration(forever) * time.Millisecond

// SetWindow puts Config.Window on record for the whole table, even when it is shorter than the
// recorded one. Call it once, by hand, when no user of the table needs the longer window any more:
// marks that only the longer window kept may be deleted at once. Three round trips.
func (m *Ledger) SetWindow(ctx context.Context, db *sql.DB) error {
	if err := m.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	if err := m.write(ctx, db,
		statement{m.dialect.setWindow, []any{windowMillis(m.window)}}); err != nil {
		return fmt.Errorf("sqladapter: set window of %s: %w", m.table.full,
			m.notMigrated(err))
	}
	return nil
}
