package redisadapter

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	defaultListLimit = 100
	defaultListScan  = 10_000
	maxListLimit     = 10_000
	maxListScan      = 1_000_000
	// minScanCount and maxScanCount bound the COUNT of a SCAN. The more names a SCAN looks at, the
	// fewer round trips a list takes, and the longer everybody else waits for the server. A
	// thousand among two million took 0.8 ms on a busy machine.
	minScanCount, maxScanCount = 10, 1000
)

// ListOptions bound one page of [Store.List]. The zero value is the first page of what is
// unfinished or uncertain.
type ListOptions struct {
	// Cursor is Page.Cursor of the page before. Default: the first page.
	Cursor string
	// Limit is how many entries end a page. A page takes all that a SCAN has found, so there may be
	// some more. At most 10 000. Default 100.
	Limit int
	// Scan is how many names a page looks at before it ends, even when it has listed none. It
	// bounds the work of one call. At most a million. Default 10 000.
	Scan int
	// Time ends a page when so much time has passed, with what was found until then; it waits for
	// round trips that are under way. Each page looks at some names. Default 0: only ctx ends the
	// call, with an error.
	Time time.Duration
	// States to list. Listing finished keys reads every record there is. StateUncertain alone is
	// read from an index, at once and exactly. Default StateInProgress and StateUncertain.
	States []driver.State
	// Irreversible lists only keys that are past their point of no return
	// ([dedup.MarkIrreversible]), from the same index: those in flight and those that are
	// uncertain, as States says. Default false.
	Irreversible bool
}

// Page is a part of what [Store.List] finds.
type Page struct {
	// Entries in no order. Claims in progress may have lapsed: see Record.Remaining.
	Entries []Entry
	// Cursor of the next page; empty when this was the last. It is opaque, at most 80 bytes
	// of letters, digits and dots, and good until a server restarts or fails over; see List.
	Cursor string
	// Foreign counts values under names of ours that are not records of a version known
	// here.
	Foreign int
	// Looked is about how many names this page has looked at, and Total how many the servers have.
	// Both include names of other programs in the database. Total is zero where the server does not
	// say it. Keys come and go, so the sum of Looked over all pages may differ from Total. For a
	// list over the index both count its entries, and on a Cluster Total is Looked.
	Looked, Total int64
}

// Entry is one key.
type Entry struct {
	// ID of the key: stores know its digest only. See [driver.NewID].
	ID driver.ID
	// Record of the key, as Lookup shows it, but without its Result.
	Record driver.Record
	// Asked counts the claims since the point of no return, and Doubt is how long ago that was
	// declared. Both are zero unless the list goes over the index.
	Asked int
	Doubt time.Duration
	// Rested is how long ago the newest claim ended, zero unless the list goes over the index.
	Rested time.Duration
}

// List shows the keys that are in a state, for operators: by default those in flight and the
// uncertain ones. It does a bounded amount of work; call it again with the cursor of the page,
// until that is empty.
//
// A list of StateUncertain alone goes over an index of the keys that are past their point of no
// return ([dedup.MarkIrreversible]). It finds every uncertain key, in two round trips for a page,
// or eight more on a Cluster. A list with Irreversible goes over the index, too. The first such
// list after an upgrade goes over the names.
//
// Any other list goes over the names with SCAN, never KEYS. So a key that is in the state from the
// first page to the last is listed at least once, and perhaps more often. A key that enters
// or leaves the state meanwhile may or may not be listed. On a Cluster it goes from master to
// master. When a master has failed over or was restarted, its old cursor means nothing, and the
// list begins that master again. Keys whose slot moves to a master that was listed already are
// missed.
//
// In a server that holds millions of keys of other programs, a page may use up all its time and
// find nothing. Redis has no list of the names that begin with our prefix, and claims do not write
// one. For each thousand names (fewer while it finds keys) it makes up to three round trips, on a
// Cluster to one node at a time, and one more to each master for the page. Redis is blocked for one
// SCAN at a time. It returns when ctx ends. Errors: an [*driver.InputError] for bad options, and
// otherwise those of Redis; see [Classify].
func (s *Store) List(ctx context.Context, opts ListOptions) (Page, error) {
	if ctx == nil {
		return Page{}, input("Context", "is nil")
	}
	if why := s.engine.Line.Withheld.Load(); why != nil {
		return Page{}, *why
	}
	at, err := opts.complete()
	if err != nil {
		return Page{}, err
	}
	began := time.Now()
	type answer struct {
		page Page
		err  error
	}
	got, err := redisscript.Within(ctx, func() answer {
		l := lister{s: s, opts: opts, budget: opts.Scan, count: opts.Limit, began: began,
			clock: s.engine.Clock.Now(ctx)}
		err := l.run(ctx, at)
		return answer{l.page, err}
	})
	if err == nil {
		err = got.err
	}
	if err != nil {
		return Page{}, wire.Wrap("list", err)
	}
	return got.page, nil
}

// Keys is [Store.List] for package console, which knows no more of stores than package dedup does.
// It calls each for the keys of a page. It returns the cursor of the next page, which is empty when
// this was the last, and how many values could not be read. limit is ListOptions.Limit. Errors are
// those of List; on an error, each was not called.
func (s *Store) Keys(ctx context.Context, cursor string, limit int, states []driver.State,
	each func(driver.ID, driver.Record)) (next string, foreign int, err error) {
	page, err := s.List(ctx, ListOptions{Cursor: cursor, Limit: limit, States: states})
	if err != nil {
		return "", 0, err
	}
	for i := range page.Entries {
		each(page.Entries[i].ID, page.Entries[i].Record)
	}
	return page.Cursor, page.Foreign, nil
}

// IrreversibleKeys is Keys with ListOptions.Irreversible: it goes over an index.
func (s *Store) IrreversibleKeys(ctx context.Context, cursor string, limit int,
	states []driver.State, each func(driver.ID, driver.Record)) (next string, foreign int,
	err error) {
	page, err := s.List(ctx, ListOptions{Cursor: cursor, Limit: limit, States: states,
		Irreversible: true})
	if err != nil {
		return "", 0, err
	}
	for i := range page.Entries {
		each(page.Entries[i].ID, page.Entries[i].Record)
	}
	return page.Cursor, page.Foreign, nil
}

// ScanKeys is Keys with a limit of time. It ends with what it has found by then, and says how far
// it has looked: limit and budget are ListOptions.Limit and Time, and looked and total are
// Page.Looked and Total. With a positive budget it looks at up to a million names, otherwise at up
// to 10,000.
func (s *Store) ScanKeys(ctx context.Context, cursor string, limit int, budget time.Duration,
	states []driver.State, each func(driver.ID, driver.Record)) (next string, looked, total int64,
	foreign int, err error) {
	opts := ListOptions{Cursor: cursor, Limit: limit, Time: budget, States: states}
	if budget > 0 {
		opts.Scan = maxListScan
	}
	page, err := s.List(ctx, opts)
	if err != nil {
		return "", 0, 0, 0, err
	}
	for i := range page.Entries {
		each(page.Entries[i].ID, page.Entries[i].Record)
	}
	return page.Cursor, page.Looked, page.Total, page.Foreign, nil
}

// complete fills in the defaults, and reads the cursor.
func (o *ListOptions) complete() (wire.Position, error) {
	switch {
	case o.Limit < 0 || o.Limit > maxListLimit:
		return wire.Position{}, input("ListOptions.Limit",
			fmt.Sprintf("is %d; at most %d is allowed", o.Limit, maxListLimit))
	case o.Scan < 0 || o.Scan > maxListScan:
		return wire.Position{}, input("ListOptions.Scan",
			fmt.Sprintf("is %d; at most %d is allowed", o.Scan, maxListScan))
	case o.Time < 0:
		return wire.Position{}, input("ListOptions.Time",
			fmt.Sprintf("is %v; it must not be negative", o.Time))
	}
	for _, state := range o.States {
		switch {
		case state == driver.StateAbsent || state > driver.StateUncertain:
			return wire.Position{}, input("ListOptions.States",
				fmt.Sprintf("has %d, in which no key is", state))
		case o.Irreversible && state != driver.StateInProgress && state != driver.StateUncertain:
			return wire.Position{}, input("ListOptions.Irreversible",
				fmt.Sprintf("is set, and States has %v: the index has no such key", state))
		}
	}
	if o.Limit == 0 {
		o.Limit = defaultListLimit
	}
	if o.Scan == 0 {
		o.Scan = defaultListScan
	}
	if len(o.States) == 0 {
		o.States = []driver.State{driver.StateInProgress, driver.StateUncertain}
	}
	return wire.ParsePosition(o.Cursor)
}

// lister makes one page.
type lister struct {
	s      *Store
	opts   ListOptions
	clock  wire.Reading
	budget int // names that may still be looked at
	count  int // of the next SCAN
	began  time.Time
	page   Page
	// irreversible are keys to be entered in the index, while this list is entering.
	irreversible []driver.ID
	entering     bool
}

// wanted reports whether the list has a key with this record.
func (l *lister) wanted(r *driver.Record) bool {
	return slices.Contains(l.opts.States, r.State) && (!l.opts.Irreversible || r.Irreversible)
}

// full reports whether the page ends here.
func (l *lister) full() bool {
	late := l.opts.Time > 0 && l.page.Looked > 0 && time.Since(l.began) >= l.opts.Time
	return late || l.budget <= 0 || len(l.page.Entries) >= l.opts.Limit
}

// run continues at a position until the page is full, and notes where it has come to.
func (l *lister) run(ctx context.Context, at wire.Position) error {
	if err := l.plan(ctx, &at); err != nil {
		return err
	}
	if at.Index {
		return l.runIndex(ctx, at)
	}
	nodes, err := wire.Masters(ctx, l.s.client())
	if err != nil {
		return err
	}
	for n := range nodes {
		l.page.Total += nodes[n].Keys
	}
	for n := range nodes {
		node := &nodes[n]
		if node.Last < at.Slot {
			continue
		}
		if at.Run != node.Run { // another server: the cursor means nothing to it
			at.Cursor = 0
		}
		for {
			if l.full() {
				l.page.Cursor = wire.Position{Slot: max(at.Slot, node.First), Run: node.Run,
					Cursor: at.Cursor}.String()
				return nil
			}
			if at.Cursor, err = l.step(ctx, node, at.Cursor); err != nil {
				return err
			}
			if at.Cursor == 0 {
				break
			}
		}
		at = wire.Position{Slot: node.Last + 1}
	}
	if l.entering { // as each page has
		return l.s.indexed(ctx)
	}
	return nil
}

// step is one SCAN, and reads what it has found. It asks for as many names as may still be
// listed, so that a page is not much longer than wanted, and for twice as many after a SCAN
// that has brought nothing.
func (l *lister) step(ctx context.Context, node *wire.Master, cursor uint64) (uint64, error) {
	count := min(max(l.count, minScanCount), maxScanCount, l.budget)
	names, next, err := node.Client.ScanType(ctx, cursor, l.s.opts.Prefix+":{*", int64(count),
		"string").Result()
	if err != nil {
		return 0, err
	}
	l.budget -= max(count, len(names))
	l.page.Looked += node.Look(max(count, len(names)))
	l.count = 2 * count
	var found []Entry
	var ours []string
	for _, name := range names {
		if id, ok := idOf(l.s.opts.Prefix, name); ok {
			found, ours = append(found, Entry{ID: id}), append(ours, name)
		}
	}
	if len(ours) == 0 {
		return next, nil
	}
	before := len(l.page.Entries)
	err = l.read(ctx, ours, found)
	if len(l.page.Entries) > before {
		l.count = l.opts.Limit - len(l.page.Entries)
	}
	return next, err
}

// idOf reads the ID in the name of a record: <prefix>:{<ID>}, or of a lease next to its
// shard, <prefix>:{<shard>}:<ID>. Other names under the prefix do not belong to records.
func idOf(prefix, name string) (id driver.ID, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix+":{")
	if !ok {
		return id, false
	}
	text, after, ok := strings.Cut(rest, "}")
	if !ok {
		return id, false
	}
	if after != "" {
		if text, ok = strings.CutPrefix(after, ":"); !ok {
			return id, false
		}
	}
	if base64.RawURLEncoding.DecodedLen(len(text)) != len(id) {
		return id, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	return driver.ID(b), true
}

// read lists the keys that are in the states asked for. It looks at the first two bytes of all
// before it reads more: most records are done, and may have results. It asks the client and not the
// node that has named the keys: while a slot moves, that node may answer with a redirection.
func (l *lister) read(ctx context.Context, names []string, found []Entry) error {
	client := l.s.client()
	heads, pipe := make([]*redis.StringCmd, len(names)), client.Pipeline()
	for i, name := range names {
		heads[i] = pipe.GetRange(ctx, name, 0, 1)
	}
	_, _ = redisscript.Exec(ctx, client, pipe) // every command carries its own
	gets, ttls, which := []*redis.StringCmd{}, []*redis.DurationCmd{}, []int{}
	pipe = client.Pipeline()
	for i, cmd := range heads {
		head, err := cmd.Result()
		switch {
		case wire.Classify(err) == wire.ClassUnreadable:
			l.page.Foreign++
		case err != nil:
			return err
		case head == "": // has gone
		case len(head) < 2 || head[0] != wire.RecordVersion:
			l.page.Foreign++
		case l.mayList(head[1]):
			gets, ttls, which = append(gets, pipe.Get(ctx, names[i])),
				append(ttls, pipe.PTTL(ctx, names[i])), append(which, i)
		}
	}
	if len(which) == 0 {
		return nil
	}
	_, _ = redisscript.Exec(ctx, client, pipe)
	for n, i := range which {
		if err := l.add(found[i], gets[n], ttls[n]); err != nil {
			return err
		}
	}
	return l.enter(ctx)
}

// mayList reports whether a record whose state byte is raw may be in a state asked for: a
// claim may have become uncertain.
func (l *lister) mayList(raw byte) bool {
	state := wire.States[raw]
	return state == driver.StateAbsent || slices.Contains(l.opts.States, state) ||
		state == driver.StateInProgress && slices.Contains(l.opts.States, driver.StateUncertain)
}

// add lists a key, unless it has changed its state since its first bytes were read.
func (l *lister) add(e Entry, get *redis.StringCmd, pttl *redis.DurationCmd) error {
	raw, err := get.Result()
	ttl, ttlErr := pttl.Result()
	switch {
	case err == redis.Nil: //nolint:errorlint // go-redis returns it as it is
		return nil
	case wire.Classify(err) == wire.ClassUnreadable:
		l.page.Foreign++
		return nil
	case err != nil:
		return err
	case ttlErr != nil:
		return ttlErr
	}
	rec, err := wire.DecodeRecord(raw)
	switch {
	case err != nil || ttl == -1: // without an expiry it is not ours
		l.page.Foreign++
		return nil
	case ttl < 0:
		return nil
	}
	e.Record = rec.Listed(ttl, l.clock)
	if l.entering && e.Record.Irreversible {
		l.irreversible = append(l.irreversible, e.ID)
	}
	if l.wanted(&e.Record) {
		l.page.Entries = append(l.page.Entries, e)
	}
	return nil
}
