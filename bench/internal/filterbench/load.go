package filterbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/owned"
)

// marksAtOnce is how many keys are begun, or marked, in one turn: the most that it takes.
const marksAtOnce = 4096

// loads: how long a new owner of a partition reads its marks, and what they take.
func (e *env) loads() []harness.Group {
	if e.redis == nil || e.marks == 0 {
		return nil
	}
	return []harness.Group{{
		Workload: "owned load", X: float64(e.marks),
		Title: fmt.Sprintf("owned, load of %s marks", harness.Short(e.marks)), Open: e.measureLoad,
	}}
}

// loaded is what a partition is measured by.
type loaded struct {
	e     *env
	o     *owner
	meter harness.Meter
	rows  []harness.Row
}

func (e *env) measureLoad(ctx context.Context, s *harness.Setup) error {
	if e.redis.Own {
		if err := e.redis.Empty(ctx); err != nil {
			return err
		}
	}
	e.built = nil
	o, err := openOwned(ctx, s, e.redis.Addr, e.oneGeneration)
	if err != nil {
		return err
	}
	if err := o.take(ctx); err != nil {
		return err
	}
	l := &loaded{e: e, o: o, meter: harness.Meter{ServerCPU: e.redis.CPU()}}
	err = errors.Join(l.fill(ctx), l.load(ctx))
	s.Rows = l.rows
	return err
}

// oneGeneration plans a generation for all marks, as they come within minutes: buckets are as full
// as they are to be.
func (e *env) oneGeneration(prefix string) owned.Options {
	opts := ownedOptions(prefix, 1)
	opts.ExpectedKeys = int(float64(e.marks) * 4 * opts.Window.Seconds() /
		(opts.Window + opts.Hold).Seconds())
	opts.InFlight = 4 * workers * marksAtOnce
	return opts
}

// fill begins and marks all keys, and has them folded.
func (l *loaded) fill(ctx context.Context) error {
	memory, err := l.memory(ctx)
	if err != nil {
		return err
	}
	sample, err := l.time(ctx, func(ctx context.Context) error {
		return errors.Join(l.markAll(ctx), l.o.fold(ctx))
	})
	if err != nil {
		return err
	}
	l.row("begun, marked and folded, in batches of 4096", noGoal, sample)
	after, err := l.memory(ctx)
	if memory > 0 {
		l.rows = append(l.rows, harness.Figure(l.name("memory of Redis"), "memory of Redis",
			float64(after-memory)/float64(l.e.marks), "bytes/key", noGoal))
	}
	return err
}

func (l *loaded) markAll(ctx context.Context) error {
	var next atomic.Int64
	return work.Parallel(ctx, workers, func(ctx context.Context, _ int) error {
		return l.mark(ctx, &next)
	})
}

// mark begins and marks keys until none is left.
func (l *loaded) mark(ctx context.Context, next *atomic.Int64) error {
	opts := l.e.oneGeneration("")
	var reqs []dedup.ClaimRequest
	var changes []dedup.Change
	for {
		to := next.Add(marksAtOnce)
		from := to - marksAtOnce
		if from >= int64(l.e.marks) {
			return nil
		}
		reqs, changes = reqs[:0], changes[:0]
		for n := from; n < min(to, int64(l.e.marks)); n++ {
			key := dedup.ID(id(uint64(n))) //nolint:gosec // from 0
			binary.BigEndian.PutUint64(key[8:], uint64(n)*0xff51afd7ed558ccd)
			reqs = append(reqs, dedup.ClaimRequest{ID: key, Token: dedup.Token(key),
				Lease: opts.Lease / 3, Hold: opts.Hold, Origin: l.o.origins[0]})
		}
		for i, a := range l.o.store.Claim(ctx, reqs) {
			if a.Err != nil || a.Outcome != dedup.Acquired {
				return fmt.Errorf("filterbench: a new key is %v: %w", a.Outcome, errors.Join(a.Err))
			}
			changes = append(changes, dedup.Change{
				ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
				State: dedup.StateSucceeded, Lease: opts.Lease / 3,
				Hold: opts.Hold, Window: opts.Window, Landed: true,
				Until: time.Now().Add(opts.Lease / 3), Origin: l.o.origins[0],
			})
		}
		for _, a := range l.o.store.Finish(ctx, changes) {
			if a.Err != nil || !a.Held {
				return fmt.Errorf("filterbench: a mark was not written: %w", errors.Join(a.Err))
			}
		}
	}
}

// load has the partition acquired by others, one after the other.
func (l *loaded) load(ctx context.Context) error {
	var samples []harness.Sample
	for range min(l.e.rounds, 3) {
		if err := l.o.held[0].Release(ctx); err != nil {
			return err
		}
		sample, err := l.time(ctx, func(ctx context.Context) (err error) {
			l.o.held[0], err = l.o.acquire(ctx,
				owned.Partition{Source: ownedSource, Number: 0, Count: ownedParts})
			return err
		})
		if err != nil {
			return err
		}
		if s := l.o.held[0].Stats(); s.OfMembers != int64(l.e.marks) || s.Members < s.OfMembers {
			return fmt.Errorf("filterbench: %d members were loaded, of %d that are counted and %d that were marked", s.Members, s.OfMembers, l.e.marks)
		}
		samples = append(samples, sample)
	}
	l.row("acquired and loaded from the sets", harness.ValueAtMost(15, 0, "s"), samples...)
	return nil
}

func (l *loaded) time(ctx context.Context, do func(context.Context) error) (s harness.Sample,
	err error) {
	before, err := l.meter.Read(ctx)
	if err != nil {
		return s, err
	}
	if err := do(ctx); err != nil {
		return s, err
	}
	after, err := l.meter.Read(ctx)
	return before.To(after, l.e.marks), err
}

// memory of Redis; 0 where it is unknown.
func (l *loaded) memory(ctx context.Context) (int64, error) {
	if l.e.redis.Embedded || !l.e.redis.Own {
		return 0, nil
	}
	return l.e.redis.Memory(ctx)
}

func (l *loaded) name(side string) string {
	return fmt.Sprintf("owned, a partition of %s marks, %s", harness.Short(l.e.marks), side)
}

// row is how long something takes for all marks.
func (l *loaded) row(side string, goal harness.Goal, samples ...harness.Sample) {
	var took, client, redis []float64
	for _, s := range samples {
		took, client, redis = append(took, float64(l.e.marks)/s.Rate), append(client, s.ClientUS),
			append(redis, s.ServerUS)
	}
	r := harness.Figure(l.name(side), side, harness.Median(took), "s", goal)
	r.Rounds, r.ClientUS, r.ServerUS = len(samples), harness.Median(client), harness.Median(redis)
	l.rows = append(l.rows, r)
}
