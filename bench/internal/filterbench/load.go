package filterbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/owned"
)

// marksAtOnce is how many keys are begun, or marked, in one call: the most that it takes.
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
	*harness.Setup

	e     *env
	o     *owner
	meter harness.Meter
}

func (e *env) measureLoad(ctx context.Context, s *harness.Setup) {
	if e.redis.Own {
		e.redis.Empty(ctx)
	}
	e.built = nil
	o := openOwned(ctx, s, e.redis.Addr, e.oneGeneration)
	o.take(ctx)
	l := &loaded{s, e, o, harness.Meter{ServerCPU: e.redis.CPU()}}
	l.fill(ctx)
	l.load(ctx)
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
func (l *loaded) fill(ctx context.Context) {
	before := l.memory(ctx)
	l.row("begun, marked and folded, in batches of 4096", noGoal, l.time(ctx, func() {
		l.markAll(ctx)
		l.o.fold(ctx)
	}))
	if before > 0 {
		l.Row(harness.Figure(l.name("memory of Redis"), "memory of Redis",
			float64(l.memory(ctx)-before)/float64(l.e.marks), "bytes/key", noGoal))
	}
}

func (l *loaded) markAll(ctx context.Context) {
	var next atomic.Int64
	work.Parallel(ctx, workers, func(ctx context.Context, _ int) { l.mark(ctx, &next) })
}

// mark begins and marks keys until none is left.
func (l *loaded) mark(ctx context.Context, next *atomic.Int64) {
	opts := l.e.oneGeneration("")
	var reqs []dedup.ClaimRequest
	var changes []dedup.Change
	for {
		to := next.Add(marksAtOnce)
		from := to - marksAtOnce
		if from >= int64(l.e.marks) {
			return
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
				must.Do(fmt.Errorf("a new key is %v: %w", a.Outcome, errors.Join(a.Err)))
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
				must.Do(fmt.Errorf("a mark was not written: %w", errors.Join(a.Err)))
			}
		}
	}
}

// load has the partition acquired by others, one after the other.
func (l *loaded) load(ctx context.Context) {
	var samples []harness.Sample
	for range min(l.e.rounds, 3) {
		must.Do(l.o.held[0].Release(ctx))
		samples = append(samples, l.time(ctx, func() {
			l.o.held[0] = l.o.acquire(ctx,
				owned.Partition{Source: ownedSource, Number: 0, Count: ownedParts})
		}))
		s := l.o.held[0].Stats()
		must.True(s.OfMembers == int64(l.e.marks) && s.Members >= s.OfMembers,
			"filterbench: %d members were loaded, of %d that are counted and %d that were marked",
			s.Members, s.OfMembers, l.e.marks)
	}
	l.row("acquired and loaded from the sets", harness.ValueAtMost(15, 0, "s"), samples...)
}

func (l *loaded) time(ctx context.Context, do func()) harness.Sample {
	before := l.meter.Read(ctx)
	do()
	return before.To(l.meter.Read(ctx), l.e.marks)
}

// memory of Redis; 0 where it is unknown.
func (l *loaded) memory(ctx context.Context) int {
	if l.e.redis.Embedded || !l.e.redis.Own {
		return 0
	}
	return l.e.redis.Memory(ctx)
}

func (l *loaded) name(side string) string {
	return fmt.Sprintf("owned, a partition of %s marks, %s", harness.Short(l.e.marks), side)
}

// row is how long something takes for all marks.
func (l *loaded) row(side string, goal harness.Goal, samples ...harness.Sample) {
	var took []float64
	for _, s := range samples {
		took = append(took, float64(l.e.marks)/s.Rate)
	}
	r, usage := harness.Figure(l.name(side), side, harness.Median(took), "s", goal),
		harness.UsageOf(samples)
	r.Rounds, r.ClientUS, r.ServerUS = len(samples), usage.ClientUS, usage.ServerUS
	l.Row(r)
}
