package owned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// askAtOnce is how many IDs one foreign ask looks for. The server looks for each ID in a bucket
	// of every generation, and does nothing else during that time. partsAtOnce is how many
	// partitions one pipeline asks. askTries bounds how often a partition is asked again because
	// its head has changed.
	askAtOnce   = 128
	partsAtOnce = 64
	askTries    = 16
	// shareSteps is how many times within a Window misplaced records can extend the time in which
	// the source is shared.
	shareSteps = 16
)

// askOthers looks for members in all other partitions of the source. It is called after the inner
// store has granted the claim. That order is right, because one script replaces a begin by its
// mark, one ask looks for both, and a shared partition accepts no new begin.
//
// Each partition answers with the version of the map that it knows. A later version than ours means
// that there may be more partitions. An earlier version means that the partition's server has lost
// a remap.
func (o *Ownership) askOthers(ctx context.Context, members []int64) ([]remoteState, error) {
	r := o.s.registry
	for range mapTries {
		m := r.current(o.part.Source)
		spots := make([]partitionRecord, 0, m.count)
		for number := range m.count {
			if number != o.part.Number {
				spots = append(spots,
					partitionRecord{names: newNames(r.prefix, o.part.Source, number)})
			}
		}
		f := foreign{s: o.s, found: make([]remoteState, len(members)), lowest: m.version,
			highest: m.version}
		if err := f.ask(ctx, spots, members); err != nil {
			return nil, err
		}
		var err error
		switch {
		case f.highest > m.version:
			_, err = r.settled(ctx)
		case f.lowest < m.version:
			m.before, m.span = m.count, r.span()
			_, err = r.announce(ctx, o.part.Source, m, nil)
		default:
			return f.found, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errMapBusy
}

// askForeign looks for members in partitions that others may own. It takes two round trips for
// each 64 partitions and 128 members, more if a set begins or an owner comes meanwhile.
func (s *Store) askForeign(ctx context.Context, spots []partitionRecord,
	members []int64) ([]remoteState, error) {
	f := foreign{s: s, found: make([]remoteState, len(members))}
	err := f.ask(ctx, spots, members)
	return f.found, err
}

// foreign is an ask to partitions that others may own.
type foreign struct {
	s     *Store
	found []remoteState
	// These are the versions of the map that the partitions have answered.
	lowest, highest uint64
}

func (f *foreign) ask(ctx context.Context, spots []partitionRecord, members []int64) error {
	for from := 0; from < len(members); from += askAtOnce {
		to := min(from+askAtOnce, len(members))
		for some := range slices.Chunk(spots, partsAtOnce) {
			if err := f.some(ctx, some, members[from:to], f.found[from:to]); err != nil {
				return err
			}
		}
	}
	return nil
}

// some asks a few partitions. It asks a partition again if its newest fresh set or its epoch has
// changed meanwhile, because a begin may have left the run, and its mark may be in a set that the
// ask did not name.
func (f *foreign) some(ctx context.Context, spots []partitionRecord, members []int64,
	found []remoteState) error {
	for range askTries {
		keys := make([]string, len(spots))
		for i := range spots {
			keys[i] = spots[i].head
		}
		heads, err := readHeads(ctx, f.s.client, keys)
		if err != nil {
			return err
		}
		calls := make([]script.Call, len(spots))
		for i := range spots {
			if heads[i] == nil {
				return fmt.Errorf("%w: %s is gone", ErrAmnesia, keys[i])
			}
			if calls[i], err = f.call(&spots[i].names, heads[i], members); err != nil {
				return err
			}
		}
		var stale []partitionRecord
		for i, reply := range f.s.send(ctx, calls...) {
			switch {
			case reply.Err == nil && reply.Answer == script.AnswerStale:
				stale = append(stale, spots[i])
			default:
				if err := f.take(&reply, found); err != nil {
					return fmt.Errorf("owned: asking %s: %w", spots[i].tag, err)
				}
			}
		}
		if spots = stale; len(spots) == 0 {
			return nil
		}
	}
	return errors.New("owned: a partition changes all the time that it is asked")
}

// call looks in all sets that head names. It also looks in the buckets of a generation that has no
// fold in head, because a fold may begin before the script runs.
func (f *foreign) call(n *names, head *script.State,
	members []int64) (script.Call, error) {
	q := script.Ask{Epoch: head.Epoch, Foreign: true, Gen: head.Gen,
		Newest: head.Gens[head.Gen].Newest, IDs: members}
	for _, gen := range slices.Sorted(maps.Keys(head.Gens)) {
		sets := head.Gens[gen]
		if sets.Newest < sets.Folded || sets.Newest-sets.Folded > maxFresh {
			return script.Call{},
				fmt.Errorf("%w: head of %s has fresh sets %d to %d in generation %d",
					script.ErrUnreadable, n.tag, sets.Folded, sets.Newest, gen)
		}
		for nth := sets.Folded + 1; nth <= sets.Newest; nth++ {
			q.Fresh = append(q.Fresh, n.fresh(gen, nth))
		}
		of := make(map[int][]int)
		for i, m := range members {
			b := f.s.members.bucket(m)
			of[b] = append(of[b], i)
		}
		for _, b := range slices.Sorted(maps.Keys(of)) {
			q.Buckets = append(q.Buckets, script.Bucket{Key: n.bucket(gen, b), Of: of[b]})
		}
	}
	return script.NewAsk(script.Keys{Head: n.head, Own: n.own, Run: n.run}, &q), nil
}

// take adds what one partition has answered. If a key is begun there and no owner lives, the key
// had an attempt, and nobody knows how that attempt ended.
func (f *foreign) take(reply *script.Reply, found []remoteState) error {
	switch {
	case reply.Err != nil:
		return reply.Err
	case reply.Answer == script.AnswerAmnesia:
		return ErrAmnesia
	case reply.Answer != script.AnswerFound || len(reply.Found) != len(found):
		return fmt.Errorf("script answered %q for %d of %d", reply.Answer, len(reply.Found),
			len(found))
	}
	for i, b := range reply.Found {
		e := &found[i]
		e.done = e.done || b.Done()
		e.live = e.live || b.Begun() && reply.Live
		e.runs += b.Runs()
		if b.Begun() && !reply.Live {
			e.runs++
		}
	}
	f.highest = max(f.highest, reply.MapVersion)
	f.lowest = min(f.lowest, reply.MapVersion)
	return nil
}

// Misplaced says that a record of this partition belongs to another one: its key was, or would be,
// marked there. Call it before each claim of the record, and again before its end. When it returns
// nil, no key of the source is New, in any partition, for Window+Hold: every key is claimed at the
// inner store, and looked for in all partitions. Each further record extends that time, but only in
// steps of a sixteenth of the Window, so most calls cost nothing. A call that extends it takes a
// round trip for each 256 partitions.
//
// After an error, or when ctx has ended, the record must not be claimed: call it again. One
// goroutine of a Store does the work; others wait.
func (o *Ownership) Misplaced(ctx context.Context) error {
	if ctx == nil {
		return input("Context", "is nil")
	}
	if err := o.lostFor(); err != nil {
		return err
	}
	r := o.s.registry
	select {
	case r.sharing <- struct{}{}:
		defer func() { <-r.sharing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	step := o.s.opts.Window / shareSteps
	for range mapTries {
		m := r.current(o.part.Source)
		if last := r.shared[o.part.Source]; o.isShared() && last.version == m.version &&
			sinceOn(last.at) < step {
			return nil
		}
		at := time.Now()
		m.before, m.span = m.count, r.span()
		told, err := r.announce(ctx, o.part.Source, m, o.hearTold)
		if err != nil {
			return err
		}
		if told.version == m.version {
			r.shared[o.part.Source] = extension{at, m.version}
			o.notifyShared(at.Add(m.span))
			return nil
		}
		if _, err := r.settled(ctx); err != nil { // there are more partitions
			return err
		}
	}
	return errMapBusy
}

// extension is the time when all partitions of a source were told to be shared, and the version of
// the map at that time.
type extension struct {
	at      time.Time
	version uint64
}

// sinceOn returns the time since at, by the monotonic clock or the wall clock, whichever shows
// more, because the monotonic clock stands still while a machine is suspended.
func sinceOn(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// hearTold notes what our own partition has answered to the announcement.
func (o *Ownership) hearTold(number int32, reply *script.Reply) {
	if number == o.part.Number {
		o.noteReply(reply)
	}
}

// notifyShared logs a warning, because a shared source costs more than a source without owners.
func (o *Ownership) notifyShared(until time.Time) {
	o.s.opts.Logger.Warn(
		"owned: a record lies in another partition than its key belongs to: every key of the source is claimed at the inner store",
		"source", o.part.Source, "partition", o.part.Number, "until", until)
	o.notifyState(0, 0, "shared", nil)
}
