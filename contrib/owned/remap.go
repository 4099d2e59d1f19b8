package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
)

// refuseMapping returns [ErrMapping] while somebody holds a partition of a source whose mapping
// would change. Otherwise two processes with different mappings would change it back and forth, and
// the source would be shared forever. The check alone excludes nobody: if an owner acquires right
// after it, that owner's batch write must be refused because of the change. It takes one round trip
// for each 256 partitions.
func (r *registry) refuseMapping(ctx context.Context, p *Partition, was mapSource) error {
	for from := int32(0); from < was.count; from += r.batch {
		number, err := r.holds(ctx, p.Source, from, min(from+r.batch, was.count))
		if err != nil {
			return fmt.Errorf("owned: finding the holders of partitions of %q: %w", p.Source, err)
		}
		if number >= 0 {
			return fmt.Errorf("%w: %q has %q, Partition.Mapping is %q, and partition %d is held",
				ErrMapping, p.Source, was.mapping, p.Mapping, number)
		}
	}
	return nil
}

// holds returns the first partition in a range that somebody holds, or -1.
func (r *registry) holds(ctx context.Context, source string, from, to int32) (int32, error) {
	type got struct {
		cmds []*redis.IntCmd
		err  error
	}
	g, err := script.Within(ctx, func() (g got) {
		pipe := r.client.Pipeline()
		for number := from; number < to; number++ {
			n := newNames(r.prefix, source, number)
			g.cmds = append(g.cmds, pipe.Exists(ctx, n.own))
		}
		_, g.err = script.Exec(ctx, r.client, pipe)
		return g
	})
	if err = errors.Join(err, g.err); err != nil {
		return -1, err
	}
	for i, cmd := range g.cmds {
		if cmd.Val() > 0 {
			return from + int32(i), nil // below maxCount
		}
	}
	return -1, nil
}

// logRemap warns of a change, because for its span a shared source costs more than a source without
// owners. Every process logs a change once, as soon as it knows. A new source is not shared.
func (r *registry) logRemap(source string, was, next mapSource) {
	if next.span == 0 || !r.firstTo(source, next.version) {
		return
	}
	r.log.Warn("owned: the mapping of a source changes: every key of it is claimed at the inner store for the span",
		"source", source, "span", next.span, "partitions", next.count, "before", was.count,
		"mapping", next.mapping, "mapping_before", was.mapping)
	if r.state != nil {
		r.state(dedup.Event{Reason: "shared"})
	}
}

// logShared does what logRemap does, for a process that starts while the source is shared and so
// does not know the mapping before.
func (o *Ownership) logShared() {
	self := o.self()
	if !o.isShared() || !o.s.registry.firstTo(o.part.Source, self.MapVersion) {
		return
	}
	o.mu.Lock()
	until := o.sharedUntil
	o.mu.Unlock()
	o.s.opts.Logger.Warn(
		"owned: a source is shared, since its mapping was changed or a record was misplaced: every key of it is claimed at the inner store",
		"source", o.part.Source, "until", time.Unix(0, int64(until)), "partitions", o.part.Count,
		"mapping", o.part.Mapping)
	o.notifyState(0, 0, "shared", nil)
}
