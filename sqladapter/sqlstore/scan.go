package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

const (
	// DefaultScanPage is the default of ScanOptions.Page.
	DefaultScanPage = 5000

	maxScanPage = 100_000
)

// ErrOtherWindow is an error of [Store.Scan]: a row is remembered for a shorter time than
// ScanOptions.ShortestWindow, so Scan may have missed other such rows.
var ErrOtherWindow = errors.New("sqlstore: a record has a shorter window than the scan assumes")

// ScanOptions say what [Store.Scan] reads. ShortestWindow is required.
type ScanOptions struct {
	// Age of the oldest rows that are read. Default: ShortestWindow.
	Age time.Duration
	// ShortestWindow is the shortest window with which any program writes to the table, or has
	// written within that time: [dedup.Config].Window, or Request.Window. Scan finds rows by when
	// they expire. Before you lower a window, lower ShortestWindow everywhere, and wait for a hot
	// window.
	ShortestWindow time.Duration
	// Page is how many rows are read at once, at most 100 000. Default: [DefaultScanPage].
	Page int
}

// Scan calls fn for every key that has a row and was ended at most opts.Age ago, except for
// released and forgotten keys. It includes every key that was committed when Scan began, and
// perhaps some that come meanwhile; it may call fn twice for a few. A filter in front of the table
// uses it, see layered.Config.Filter. age is how long ago the key was ended, by the clock of the
// database. It is less where the row is remembered for longer than ShortestWindow, so that a filter
// keeps it for as long as the table does.
//
// It reads in pages by the index on expires, one round trip each, three on MySQL, and one more for
// the clock, and holds no connection while fn runs. It changes nothing. An error of fn ends it and
// is returned as it is. [ErrOtherWindow] says that the answer would not be complete. When ctx ends
// Scan returns its error, too. Read from the primary: a replica that is behind lacks the newest
// rows.
func (s *Store) Scan(ctx context.Context, opts ScanOptions,
	fn func(id driver.ID, age time.Duration) error) error {
	if err := opts.complete(); err != nil {
		return err
	}
	if fn == nil {
		return dialect.InputError("fn", "is nil")
	}
	from, err := s.scanFrom(ctx, &opts)
	if err != nil {
		return fmt.Errorf("sqlstore: scan: %w", s.notMigrated(err))
	}
	for limit := opts.Page; ; {
		rows, err := s.scanPage(ctx, from, limit)
		if err != nil {
			return fmt.Errorf("sqlstore: scan: %w", s.notMigrated(err))
		}
		for i := range rows {
			if err := rows[i].check(opts.ShortestWindow); err != nil {
				return err
			}
			if err := fn(rows[i].id, rows[i].age(opts.ShortestWindow)); err != nil {
				return err
			}
		}
		if len(rows) < limit {
			return nil
		}
		last := rows[len(rows)-1].expires
		if last == from { // all rows of the page expire together: a larger page goes beyond them
			limit *= 2
			continue
		}
		from, limit = last, opts.Page
	}
}

func (o *ScanOptions) complete() error {
	switch {
	case o.ShortestWindow <= 0:
		return dialect.InputError("ScanOptions.ShortestWindow",
			fmt.Sprintf("is %v; it must be positive", o.ShortestWindow))
	case o.Age < 0:
		return dialect.InputError("ScanOptions.Age", "is negative")
	case o.Page < 0 || o.Page > maxScanPage:
		return dialect.InputError("ScanOptions.Page",
			fmt.Sprintf("is %d; at most %d is allowed", o.Page, maxScanPage))
	}
	if o.Age == 0 {
		o.Age = math.MaxInt64
	}
	if o.Page == 0 {
		o.Page = DefaultScanPage
	}
	return nil
}

// scanFrom returns when the first row to read expires: not before now, and not before a row that
// was ended Age ago under the shortest window.
func (s *Store) scanFrom(ctx context.Context, opts *ScanOptions) (int64, error) {
	var now int64
	err := within(ctx, func() error {
		return s.again(ctx, func(int) error {
			return s.read(ctx, func(q querier) error {
				return queryOne(ctx, q, s.dialect.clock(), &now)
			})
		})
	})
	if err != nil {
		return 0, err
	}
	return later(now, max(0, opts.ShortestWindow-opts.Age)), nil
}

// scanned is what a scan reads of a row.
type scanned struct {
	id             driver.ID
	ended          bool // succeeded or failed
	since, expires int64
	now            int64
}

// age returns how long ago the key was ended. It returns at most window minus the time until the
// row expires, and exactly that if the end is unknown.
func (r *scanned) age(window time.Duration) time.Duration {
	age := window - span(r.now, r.expires)
	if r.ended {
		age = min(age, span(r.since, r.now))
	}
	return max(age, 0)
}

func (r *scanned) check(window time.Duration) error {
	if kept := span(r.since, r.expires); r.ended && kept < window {
		return fmt.Errorf("%w: %v of %v", ErrOtherWindow, kept, window)
	}
	return nil
}

// scanPage reads rows in the order in which they expire.
func (s *Store) scanPage(ctx context.Context, from int64, limit int) ([]scanned, error) {
	// a call that still runs after ctx has ended may write it, so read it only without an error
	var page []scanned
	err := within(ctx, func() error {
		return s.again(ctx, func(int) error {
			return s.read(ctx, func(q querier) (err error) {
				page, err = readScanned(ctx, q, s.dialect.scan(from, limit), limit)
				return err
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func readScanned(ctx context.Context, q querier, st statement, limit int) (page []scanned,
	err error) {
	rows, err := q.query(ctx, st)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	page = make([]scanned, 0, min(limit, DefaultScanPage))
	var id []byte
	for rows.Next() {
		var r scanned
		var state int64
		if err := rows.Scan(&id, &state, &r.since, &r.expires, &r.now); err != nil {
			return nil, err
		}
		if len(id) != len(r.id) {
			return nil, fmt.Errorf("%w: id of %d bytes", driver.ErrUnreadable, len(id))
		}
		copy(r.id[:], id)
		r.ended = state == int64(driver.StateSucceeded) || state == int64(driver.StateFailed)
		page = append(page, r)
	}
	return page, rows.Err()
}

// scanWhere selects the rows that would stop a claim. It includes states of a newer version.
const scanWhere = ` WHERE state NOT IN (0, 4) AND expires >= `
