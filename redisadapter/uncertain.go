package redisadapter

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// The index has the keys past their point of no return. A key becomes uncertain when its lease
// lapses, without any command that could enter it. So a list looks at the record of each entry.
// index.lua describes the entries.

// slotsAtOnce is how many slots of a Cluster one pipeline asks for entries.
const slotsAtOnce = 2048

// Uncertain implements [driver.Resolvable] over the index: see [ListOptions].States. On a Cluster
// it asks every slot, which costs about 50 ms of CPU for a whole list: with many processes, set
// resolver.Config.Every to half a minute there.
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
	return s.engine.ClaimUncertain(ctx, req)
}

// plan decides whether a list that may go over the index does so, or goes over the names. Until one
// list has gone over all names, each list enters into the index what it finds: records from before
// there was an index, or from another kind of server. A user without the right to write can still
// list them.
func (l *lister) plan(ctx context.Context, at *wire.Position) error {
	if at.Index || !l.opts.Irreversible &&
		!slices.Contains(l.opts.States, driver.StateUncertain) {
		return nil
	}
	// An error of this call reveals a proxy that shards, or a user who may only read.
	refused := l.s.engine.Reindex(ctx, make([]driver.ID, 1))
	n, err := l.s.client().Exists(ctx, l.s.index.Complete()).Result()
	if wire.Classify(err) == wire.ClassDenied {
		return nil
	}
	l.entering = err == nil && n == 0 && wire.Classify(refused) != wire.ClassDenied
	at.Index = n > 0 && (l.opts.Irreversible || len(l.opts.States) == 1) &&
		*at == wire.Position{}
	return err
}

// indexed notes that all records are entered.
func (s *Store) indexed(ctx context.Context) error {
	err := s.client().Do(ctx, "set", s.index.Complete(), "1", "nx", "get").Err()
	if errors.Is(err, redis.Nil) {
		return nil // it was not there
	}
	return err
}

// entry is one entry of the index.
type entry struct {
	id                     driver.ID
	since, asked, restedAt int64
}

// runIndex is run for a list over the index.
func (l *lister) runIndex(ctx context.Context, at wire.Position) error {
	if l.s.index.BySlot() {
		return l.runSlots(ctx, at.Slot)
	}
	run := uint64(0)
	nodes, err := wire.Masters(ctx, l.s.client())
	if err != nil {
		return err
	}
	for i := range nodes {
		run = nodes[i].Run
	}
	if at.Run != run { // another server: the cursor means nothing to it
		at.Cursor = 0
	}
	name := l.s.index.Of("")
	if l.page.Total, err = l.s.client().HLen(ctx, name).Result(); err != nil {
		return err
	}
	for {
		if at.Cursor, err = l.stepIndex(ctx, name, at.Cursor); err != nil || at.Cursor == 0 {
			return err
		}
		if l.full() {
			l.page.Cursor = wire.Position{Run: run, Cursor: at.Cursor, Index: true}.String()
			return nil
		}
	}
}

// runSlots takes all entries of a slot at once: there are many slots, with few entries each.
func (l *lister) runSlots(ctx context.Context, from int) error {
	client := l.s.client()
	for from < wire.Slots {
		pipe, lens, names := client.Pipeline(), []*redis.IntCmd{}, []string{}
		for _, name := range l.s.index.From(from) {
			lens, names = append(lens, pipe.HLen(ctx, name)), append(names, name)
			if len(lens) == slotsAtOnce {
				break
			}
		}
		_, _ = redisscript.Exec(ctx, client, pipe) // every command carries its own
		for i, cmd := range lens {
			n, err := cmd.Result()
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			l.page.Total += n
			for next := uint64(0); ; {
				if next, err = l.stepIndex(ctx, names[i], next); err != nil {
					return err
				}
				if next == 0 {
					break
				}
			}
			if l.full() && from+i+1 < wire.Slots {
				l.page.Cursor = wire.Position{Slot: from + i + 1, Index: true}.String()
				return nil
			}
		}
		from += len(lens)
	}
	return nil
}

// stepIndex reads some entries of one hash, and lists those whose records are in the states asked
// for.
func (l *lister) stepIndex(ctx context.Context, name string, cursor uint64) (uint64, error) {
	count := min(max(l.opts.Limit-len(l.page.Entries), minScanCount), maxScanCount)
	fields, next, err := l.s.client().HScan(ctx, name, cursor, "", int64(count)).Result()
	if err != nil {
		return 0, err
	}
	var entries []entry
	var ids []driver.ID
	for i := 0; i+1 < len(fields); i += 2 {
		e, ok := parseEntry(fields[i], fields[i+1])
		if !ok {
			l.page.Foreign++
			continue
		}
		entries, ids = append(entries, e), append(ids, e.id)
	}
	l.budget -= len(entries)
	l.page.Looked += int64(len(entries))
	if len(ids) == 0 {
		return next, nil
	}
	var left []driver.ID
	for i, ans := range l.s.engine.Lookup(ctx, ids) {
		switch rec := &ans.Record; {
		case errors.Is(ans.Err, driver.ErrUnreadable):
			l.page.Foreign++
		case ans.Err != nil:
			return 0, ans.Err
		case rec.State == driver.StateUncertain, rec.State == driver.StateInProgress:
			if l.wanted(rec) {
				l.page.Entries = append(l.page.Entries, l.entry(&entries[i], *rec))
			}
		default:
			left = append(left, entries[i].id)
		}
	}
	if len(left) > 0 {
		// An entry that cannot be taken out now, for example while its slot moves, is left to
		// another list.
		_ = l.s.engine.Reindex(ctx, left)
	}
	return next, nil
}

func (l *lister) entry(e *entry, rec driver.Record) Entry {
	rec.Result = nil
	listed := Entry{ID: e.id, Record: rec, Asked: int(e.asked)}
	now := time.Now().UnixMilli()
	if l.clock.Known() {
		now = l.clock.Millis()
	}
	listed.Doubt = redisscript.FromMillis(max(now-e.since, 0))
	listed.Rested = redisscript.FromMillis(max(now-e.restedAt, 0))
	return listed
}

// parseEntry reads a field of the index.
func parseEntry(field, value string) (e entry, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(field)
	parts := strings.Fields(value)
	if err != nil || len(b) != len(e.id) || len(parts) != 4 {
		return e, false
	}
	e.id = driver.ID(b)
	for i, n := range []*int64{&e.since, &e.asked, &e.restedAt} {
		if *n, err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return e, false
		}
	}
	return e, true
}

// enter puts those records of a list into the index that are past their point of no return.
func (l *lister) enter(ctx context.Context) error {
	if len(l.irreversible) == 0 {
		return nil
	}
	ids := l.irreversible
	l.irreversible = nil
	return l.s.engine.Reindex(ctx, ids)
}
