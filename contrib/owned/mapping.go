package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// remapBatch is how many partitions one pipeline tells about a change.
	remapBatch = 256
	// mapTries bounds how often one call begins or continues a change. It tries again when somebody
	// else has written the record in between.
	mapTries = 64
)

// errMapBusy reports that somebody else had changed the record at each try.
var errMapBusy = errors.New("owned: the map record changes all the time")

// span is how long no key is New after keys have moved: marks and begins under the earlier mapping
// are remembered for the Window and the Hold. The span is one step of Misplaced longer. Misplaced
// relies on what it told all partitions up to one step ago, and it has not told partitions that
// were made since then.
func (r *registry) span() time.Duration {
	return script.FromMillis(r.settings.window + r.settings.hold + r.settings.window/
		shareSteps + 1)
}

// mapped returns the line of the map under which a partition is acquired. It puts a new source on
// record, begins a change of its count or its mapping, and continues a change that was begun. It
// returns [ErrCount] for a lower count than on record, and [ErrMapping] for another mapping while a
// partition is held. It returns [ErrAmnesia] if there is no record, or no head where one must be.
// It takes one round trip if nothing has changed; with a change, three and one for each 256
// partitions.
//
// A change has three steps. (1) The record says `changing`, with a new version and count. (2)
// Every partition learns the version, and that it is shared for a span: from here on no partition
// accepts a begin. (3) The record says `steady`. Nothing is granted under a count before (3),
// because a partition that was not told yet may still mark keys that have moved. A process that
// reads `changing` continues from (2), whether or not the process that began the change still runs,
// because each step can be repeated.
func (r *registry) mapped(ctx context.Context, p *Partition) (mapSource, error) {
	for range mapTries {
		m, text, err := r.read(ctx)
		switch {
		case err != nil:
			return mapSource{}, err
		case m == nil:
			return mapSource{}, fmt.Errorf("%w: %s is gone", ErrAmnesia, r.key)
		}
		was, known := m.sources[p.Source]
		if known {
			r.see(p.Source, was)
		}
		switch {
		case was.changing:
			err = r.finish(ctx, p.Source, was)
		case known && p.Count < was.count:
			return mapSource{}, fmt.Errorf("%w: %q has had %d, and Partition.Count is %d",
				ErrCount, p.Source, was.count, p.Count)
		case known && p.Count == was.count && p.Mapping == was.mapping:
			return was, nil
		default:
			err = r.begin(ctx, p, m, text)
		}
		if err != nil {
			return mapSource{}, err
		}
	}
	return mapSource{}, errMapBusy
}

// begin is step 1. It also returns nil if somebody else has written the record meanwhile; the
// caller then reads it again.
func (r *registry) begin(ctx context.Context, p *Partition, m *mapRecord, text string) error {
	was, known := m.sources[p.Source]
	if known && p.Mapping != was.mapping {
		if err := r.refuseMapping(ctx, p, was); err != nil {
			return err
		}
	}
	next := r.change(was, p)
	done, err := r.swap(ctx, text, m.with(p.Source, next))
	if done {
		r.logRemap(p.Source, was, next)
	}
	return err
}

// change returns the line of a source that is changed to what p says. A new source need not be
// shared, because it has no marks in other partitions.
func (r *registry) change(was mapSource, p *Partition) mapSource {
	next := mapSource{changing: true, version: was.version + 1, count: p.Count, before: was.count,
		mapping: p.Mapping}
	if was.count > 0 {
		next.span = r.span()
	}
	return next
}

// finish does steps 2 and 3 of a change. It also returns nil if somebody else has changed the line
// meanwhile; the caller then reads it again.
func (r *registry) finish(ctx context.Context, source string, s mapSource) error {
	told, err := r.announce(ctx, source, s, nil)
	if err != nil {
		return err
	}
	next := s
	switch {
	case told.version > s.version || told.used && s.before == 0 && s.span == 0:
		// The partitions know a map that the record does not know, so a later record was lost.
		next.version, next.span = max(told.version, s.version)+1, r.span()
	default:
		next.changing = false
	}
	return r.replace(ctx, source, s, next)
}

// replace replaces the line of a source, unless that has changed meanwhile.
func (r *registry) replace(ctx context.Context, source string, s, next mapSource) error {
	for range mapTries {
		m, text, err := r.read(ctx)
		if err != nil {
			return err
		}
		if m == nil || m.sources[source] != s {
			return nil
		}
		done, err := r.swap(ctx, text, m.with(source, next))
		if done && next.version > s.version {
			r.logRemap(source, s, next)
		}
		if done || err != nil {
			return err
		}
	}
	return errMapBusy
}

// mapReplies holds what the partitions of a source have answered.
type mapReplies struct {
	version uint64 // the largest that one of them knows
	used    bool   // one of them has had an owner
}

// announce is step 2: every partition learns the version, and is shared for the span. A partition
// with the number s.before or above gets a head if it has none. The function hear, which may be
// nil, is called with every reply.
func (r *registry) announce(ctx context.Context, source string, s mapSource,
	hear func(number int32, reply *script.Reply)) (mapReplies, error) {
	var all mapReplies
	for from := int32(0); from < s.count; from += r.batch {
		to := min(from+r.batch, s.count)
		calls := make([]script.Call, 0, to-from)
		for number := from; number < to; number++ {
			calls = append(calls, r.remap(source, number, script.Remap{
				MapVersion: s.version, Span: s.span, Bear: number >= s.before,
			}))
		}
		for i, reply := range r.runner.Run(ctx, calls) {
			number := from + int32(i) // below maxCount
			if err := all.take(&reply, s.before, number); err != nil {
				return all, fmt.Errorf("owned: remap of partition %d of %q: %w",
					number, source, err)
			}
			if hear != nil {
				hear(number, &reply)
			}
		}
	}
	return all, nil
}

// take notes what one partition has answered. A partition with a number below before must have a
// head.
func (t *mapReplies) take(reply *script.Reply, before, number int32) error {
	switch {
	case reply.Err != nil:
		return reply.Err
	case reply.Answer == script.AnswerAmnesia && number < before:
		return fmt.Errorf("%w: it has no head", ErrAmnesia)
	case reply.Answer == script.AnswerAmnesia:
		t.used = true // it has a head, which says lost
	case reply.Answer != script.AnswerMapped:
		return fmt.Errorf("script answered %q", reply.Answer)
	}
	t.version = max(t.version, reply.MapVersion)
	t.used = t.used || reply.Seq > 0 || reply.Gen > 0
	return nil
}

func (r *registry) remap(source string, number int32, m script.Remap) script.Call {
	n := newNames(r.prefix, source, number)
	return script.NewRemap(script.Keys{Head: n.head, Own: n.own, Run: n.run}, m)
}

// level handles a partition that knows another version than the line of its source. If the
// partition's version is earlier, its server has lost the later version, and level tells it again.
// If the partition's version is later, a change is under way, or the record has lost a change. In
// that case level writes a version into the record that is above all others. After either of these,
// level returns nil, and the record must be read again.
func (r *registry) level(ctx context.Context, p *Partition, s mapSource, knows uint64) error {
	if knows > s.version {
		next := s
		next.changing, next.version, next.before, next.span = true, knows+1, s.count, r.span()
		// This writes only if the line is still the same, because a change is on record before
		// partitions are told.
		return r.replace(ctx, p.Source, s, next)
	}
	call := r.remap(p.Source, p.Number, script.Remap{MapVersion: s.version, Span: r.span()})
	reply := r.runner.Run(ctx, []script.Call{call})[0]
	var all mapReplies
	if err := all.take(&reply, s.count, p.Number); err != nil {
		return fmt.Errorf("owned: remap of partition %d of %q: %w", p.Number, p.Source, err)
	}
	return nil
}

// settled continues the changes that were begun, and returns the record when no source changes.
func (r *registry) settled(ctx context.Context) (*mapRecord, error) {
	for range mapTries {
		m, _, err := r.read(ctx)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			return nil, fmt.Errorf("%w: %s is gone", ErrAmnesia, r.key)
		}
		changing := false
		for source, s := range m.sources {
			r.see(source, s)
			if s.changing {
				changing = true
				if err := r.finish(ctx, source, s); err != nil {
					return nil, err
				}
			}
		}
		if !changing {
			return m, nil
		}
	}
	return nil, errMapBusy
}

// agree checks that the servers and the record are as the Store needs them.
func (s *Store) agree(ctx context.Context) error { return s.registry.agree(ctx) }

// everywhere returns all partitions of all sources on record. One round trip, unless a mapping
// changes.
func (s *Store) everywhere(ctx context.Context) ([]partitionRecord, error) {
	m, err := s.registry.settled(ctx)
	if err != nil {
		return nil, err
	}
	var all []partitionRecord
	for source, line := range m.sources {
		for number := range line.count {
			p := Partition{Source: source, Number: number}
			all = append(all, partitionRecord{p.place(), newNames(s.opts.Prefix, source, number)})
		}
	}
	return all, nil
}
