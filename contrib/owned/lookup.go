package owned

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
)

// Lookup implements [driver.Store]. A key that this process has in flight costs no round trip. For
// other keys it asks the inner store and every partition on record.
func (s *Store) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	out := answers(len(ids))
	if refuseEnded(ctx, out) {
		return out
	}
	var rest []int
	for i := range ids {
		if rec, ok := s.tabled(&ids[i]); ok {
			out[i].Record = rec
			continue
		}
		rest = append(rest, i)
	}
	if len(rest) > 0 {
		s.lookup(ctx, ids, rest, out)
	}
	return out
}

// tabled returns what the table knows of a key. It returns false if the inner store must be asked.
func (s *Store) tabled(id *driver.ID) (driver.Record, bool) {
	hash := s.table.hash(id)
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.live(hash, id, s.now())
	switch {
	case e == nil, e.state == asking, e.state == claimed, e.state == ended && e.end != unused:
		// another process may have forgotten the key since
		return driver.Record{}, false
	case e.state == ended:
		return e.endRecord(s, s.now()), true
	}
	return e.record(s.now()), true
}

// outward adds to a record of the inner store the attempts that this store does not know, and the
// fence that the caller of the claim got.
func (s *Store) outward(id *driver.ID, rec *driver.Record, runs int) {
	if rec.State == driver.StateAbsent {
		return
	}
	hash := s.table.hash(id)
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.find(hash, id); e != nil &&
		(e.state == claimed || e.state == ended && e.end == passed) {
		runs = max(runs, e.runs)
		e.told(rec)
	}
	rec.Attempt += runs
}

// lookup asks the stores.
func (s *Store) lookup(ctx context.Context, ids []driver.ID, at []int, out []driver.Answer) {
	asked := make([]driver.ID, len(at))
	all := make([]int64, len(at))
	for n, i := range at {
		asked[n], all[n] = ids[i], s.members.of(&ids[i])
	}
	for n, ans := range s.inner.Lookup(ctx, asked) {
		out[at[n]] = ans
	}
	found, err := s.lookInSets(ctx, all)
	for n, i := range at {
		switch a := &out[i]; {
		case a.Err != nil:
		case err != nil:
			*a = driver.Answer{Err: err}
		case found[n].done:
			a.Record = s.doneRecord()
		case a.Record.State != driver.StateAbsent:
			s.outward(&ids[i], &a.Record, found[n].runs)
		case found[n].live:
			a.Record = remoteOwnerAnswer(s.opts.Lease).Record
		case found[n].runs > 0:
			a.Record = driver.Record{State: driver.StateInProgress, Attempt: found[n].runs}
		}
	}
}

// lookInSets looks for members in every partition on record. For a partition that is held here, the
// table and the suspects show which keys have begun. For any other partition, its record shows
// that.
func (s *Store) lookInSets(ctx context.Context, all []int64) ([]remoteState, error) {
	spots, err := s.everywhere(ctx)
	if err != nil {
		return nil, err
	}
	var asks []*ask
	var foreign []partitionRecord
	for i := range spots {
		if o := s.holder(spots[i].partitionKey); o != nil {
			a := &ask{o: o}
			for _, member := range all {
				a.items = append(a.items, lookup{member: member, in: anywhere})
			}
			asks = append(asks, a)
			continue
		}
		foreign = append(foreign, spots[i])
	}
	found := make([]remoteState, len(all))
	if len(foreign) > 0 {
		if found, err = s.askForeign(ctx, foreign, all); err != nil {
			return nil, err
		}
	}
	if len(asks) > 0 {
		s.roundTrip(ctx, nil, asks)
	}
	for _, a := range asks {
		if a.reply.Err != nil {
			return nil, a.reply.Err
		}
		if len(a.reply.Found) == 0 {
			return nil, errRemoteOwner
		}
		for n, member := range all {
			found[n].done = found[n].done || a.reply.Found[n].Done()
			found[n].runs += a.o.runs(member)
		}
	}
	return found, nil
}

// Forgets is a number that changes with every Forget, of any process, as [driver.Store] says. It is
// a digest of the inner store's number, and of the source, number, epoch and forgets of every
// partition that is held. A Forget in a partition that nobody holds raises its epoch.
func (s *Store) Forgets(ctx context.Context) (uint64, error) {
	inner, ok := s.inner.(driver.ForgetCounter)
	if !ok {
		return 0, errors.New("owned: the inner store does not count what it forgets")
	}
	n, err := inner.Forgets(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.refresh(ctx); err != nil {
		return 0, err
	}
	h := fnv.New64a()
	words := []uint64{n}
	for _, o := range s.sorted() {
		o.mu.Lock()
		number := uint64(o.part.Number) // never negative
		words = append(words, o.part.place().source, number, o.epoch, o.forgets)
		o.mu.Unlock()
	}
	for _, w := range words {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, w))
	}
	return h.Sum64(), nil
}

// refresh asks every partition that is held how often something was forgotten.
func (s *Store) refresh(ctx context.Context) error {
	var turns []*batchWrite
	for _, o := range s.sorted() {
		turns = append(turns, &batchWrite{o: o})
	}
	if len(turns) == 0 {
		return nil
	}
	s.roundTrip(ctx, turns, nil)
	for _, t := range turns {
		if t.reply.Err != nil {
			return t.reply.Err
		}
	}
	return nil
}

// sorted returns the partitions that are held, always in the same order.
func (s *Store) sorted() []*Ownership {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Ownership
	for _, o := range s.held {
		if o.lostFor() == nil {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *Ownership) int {
		if c := slices.Compare([]byte(a.names.tag), []byte(b.names.tag)); c != 0 {
			return c
		}
		return 0
	})
	return all
}
