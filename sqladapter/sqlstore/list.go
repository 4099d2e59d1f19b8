package sqlstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

const (
	// DefaultListLimit is the default of ListOptions.Limit.
	DefaultListLimit = 100

	maxListLimit = 10_000
)

// ListOptions bound one page of [Store.List]. The zero value is the first page of the keys that are
// in flight or uncertain.
type ListOptions struct {
	// Cursor is Page.Cursor of the page before. Default: the first page.
	Cursor string
	// Limit is how many keys are read, at most 10 000; a page may list fewer. Default:
	// [DefaultListLimit].
	Limit int
	// States to list. Listing finished keys reads the whole table. Default:
	// [driver.StateInProgress] and [driver.StateUncertain].
	States []driver.State
}

// Page is a part of what [Store.List] finds.
type Page struct {
	// Entries in the order of their ids. The leases of in-progress claims may have lapsed: see
	// Record.Remaining.
	Entries []Entry
	// Cursor of the next page; empty when this was the last. It stays valid.
	Cursor string
	// Foreign counts rows that this version cannot read.
	Foreign int
}

// Entry is one key.
type Entry struct {
	// ID of the key: stores know its digest only. See [driver.NewID].
	ID driver.ID
	// Record of the key, as Lookup shows it, but without its Result.
	Record dedup.Record
	// Asked is how often somebody has claimed the key to find out about it, since MarkIrreversible
	// was called.
	Asked int
	// Doubt is how long ago MarkIrreversible was called; zero when it was not.
	Doubt time.Duration
	// Rested is how long ago the newest claim ended; negative or zero while it lasts.
	Rested time.Duration
}

// List shows the keys that are in given states, for operators: by default those in flight and those
// that are uncertain. Call it again with the cursor of the page, until that is empty. A key that
// stays in these states from the first page to the last is listed once; one that enters or leaves
// them meanwhile may or may not be listed. It takes one round trip, three on MySQL.
func (s *Store) List(ctx context.Context, opts ListOptions) (Page, error) {
	after, err := opts.complete()
	if err != nil {
		return Page{}, err
	}
	var page Page
	err = within(ctx, func() (err error) {
		page, err = s.list(ctx, opts, after)
		return err
	})
	if err != nil {
		return Page{}, fmt.Errorf("sqlstore: list: %w", s.notMigrated(err))
	}
	return page, nil
}

// Keys is [Store.List] for package console, which knows stores only through package dedup. It calls
// each for every key of a page. It returns the cursor of the next page, empty when this was the
// last, and how many rows could not be read. limit is ListOptions.Limit. Errors are those of List,
// and each is then not called.
func (s *Store) Keys(ctx context.Context, cursor string, limit int, states []driver.State,
	each func(driver.ID, dedup.Record)) (next string, foreign int, err error) {
	page, err := s.List(ctx, ListOptions{Cursor: cursor, Limit: limit, States: states})
	if err != nil {
		return "", 0, err
	}
	for i := range page.Entries {
		each(page.Entries[i].ID, page.Entries[i].Record)
	}
	return page.Cursor, page.Foreign, nil
}

// Uncertain implements [driver.Resolvable].
func (s *Store) Uncertain(ctx context.Context, cursor string,
	limit int) (page []driver.UncertainRecord, next string, err error) {
	found, err := s.List(ctx, ListOptions{Cursor: cursor, Limit: limit,
		States: []driver.State{driver.StateUncertain}})
	for i := range found.Entries {
		e := &found.Entries[i]
		page = append(page, driver.UncertainRecord{ID: e.ID, Record: e.Record, Asked: e.Asked,
			Age: e.Doubt, Rested: e.Rested})
	}
	return page, found.Cursor, err
}

// ClaimUncertain implements [driver.Resolvable].
func (s *Store) ClaimUncertain(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	if err := req.Check(); err != nil {
		return driver.Answer{Err: err}
	}
	req.TakeUncertain, req.OnlyNew = true, false
	return answer(ctx, 1, func(answers []driver.Answer) {
		s.settle(ctx, operation{
			id: func(int) driver.ID { return req.ID }, size: noSize,
			decide: func(_ int, r *claimRow, now int64) (driver.Answer, bool) {
				return decideAsk(r, &req, now)
			},
		}, all(1), answers)
	})[0]
}

func (s *Store) list(ctx context.Context, opts ListOptions, after driver.ID) (page Page,
	err error) {
	var rows []*claimRow
	var now int64
	err = s.again(ctx, func(int) error {
		return s.read(ctx, func(q querier) (err error) {
			rows, now, err = s.rows(ctx, q, func() statement {
				return s.dialect.page(after, stateList(opts.States), opts.Limit)
			})
			return err
		})
	})
	for _, r := range rows {
		rec := r.view(now)
		rec.Result = nil
		switch {
		case r.bad != nil:
			page.Foreign++
		case slices.Contains(opts.States, rec.State):
			page.Entries = append(page.Entries, entryOf(r, rec, now))
		}
	}
	if len(rows) == opts.Limit {
		page.Cursor = hex.EncodeToString(rows[len(rows)-1].id[:])
	}
	return page, err
}

func entryOf(r *claimRow, rec dedup.Record, now int64) Entry {
	e := Entry{ID: r.id, Record: rec, Asked: r.asked, Rested: span(r.leaseEnd, now)}
	if r.has(flagIrreversible) {
		e.Doubt = max(span(r.since, now), 0)
	}
	return e
}

// complete fills in the defaults, and reads the cursor.
func (o *ListOptions) complete() (after driver.ID, err error) {
	if o.Limit < 0 || o.Limit > maxListLimit {
		return after, dialect.InputError("ListOptions.Limit",
			fmt.Sprintf("is %d; at most %d is allowed", o.Limit, maxListLimit))
	}
	for _, state := range o.States {
		if state == driver.StateAbsent || state > driver.StateUncertain {
			return after, dialect.InputError("ListOptions.States",
				fmt.Sprintf("has %d, in which no key is", state))
		}
	}
	if o.Limit == 0 {
		o.Limit = DefaultListLimit
	}
	if len(o.States) == 0 {
		o.States = []driver.State{driver.StateInProgress, driver.StateUncertain}
	}
	if o.Cursor == "" {
		return after, nil
	}
	b, err := hex.DecodeString(o.Cursor)
	if err != nil || len(b) != len(after) {
		return after, dialect.InputError("ListOptions.Cursor", "is not of a page")
	}
	return driver.ID(b), nil
}

// stateList lists the stored states of rows that may be shown in one of these states: a row in
// progress may have become uncertain. The numbers were checked, so they stand in the statement's
// text.
func stateList(states []driver.State) string {
	var list []string
	for state := driver.StateInProgress; state <= driver.StateUncertain; state++ {
		if slices.Contains(states, state) ||
			state == driver.StateInProgress && slices.Contains(states, driver.StateUncertain) {
			list = append(list, strconv.Itoa(int(state)))
		}
	}
	return strings.Join(list, ", ")
}
