package front

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/owned"
)

// marksAtOnce is how many keys are begun, or marked, in one turn: the most that it takes.
const marksAtOnce = 4096

// loadFamily are the rows of an owner that begins with marks of another one.
const loadFamily = "owned load"

// loads: how long a new owner of a partition reads its marks, and what they take.
func (e *Env) loads() []harness.Group {
	if e.Redis == nil || e.Marks == 0 {
		return nil
	}
	return []harness.Group{{
		Workload: loadFamily, X: float64(e.Marks), Title: fmt.Sprintf("owned, load of %s marks", short(e.Marks)), Measure: e.measureLoad,
	}}
}

// loaded is what a partition is measured by.
type loaded struct {
	e     *Env
	o     *owner
	meter harness.Meter
	rows  []harness.Row
}

func (e *Env) measureLoad(ctx context.Context) (rows []harness.Row, err error) {
	if e.Redis.Own {
		if err := e.Redis.Empty(ctx); err != nil {
			return nil, err
		}
	}
	e.built = nil
	o, err := openOwned(ctx, e.Redis.Addr, e.oneGeneration)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	l := &loaded{e: e, o: o}
	if !e.Redis.Embedded {
		l.meter.ServerCPU = e.Redis.CPU
	}
	if err := o.take(ctx); err != nil {
		return nil, err
	}
	return l.rows, errors.Join(l.fill(ctx), l.load(ctx))
}

// oneGeneration plans a generation for all marks, as they come within minutes: buckets are as full as they
// are to be.
func (e *Env) oneGeneration(prefix string) owned.Options {
	opts := ownedOptions(prefix, 1)
	opts.ExpectedKeys = int(float64(e.Marks) * 4 * opts.Window.Seconds() / (opts.Window + opts.Hold).Seconds())
	opts.InFlight = 4 * workers * marksAtOnce
	return opts
}

// fill begins and marks all keys, and has them folded.
func (l *loaded) fill(ctx context.Context) error {
	memory, err := l.memory(ctx)
	if err != nil {
		return err
	}
	took, sample, err := l.time(ctx, func(ctx context.Context) error { return errors.Join(l.markAll(ctx), l.o.fold(ctx)) })
	if err != nil {
		return err
	}
	l.row("begun, marked and folded, by turns of 4096", "s", []float64{took}, []harness.Sample{sample}, harness.Goal{})
	if after, err := l.memory(ctx); err != nil {
		return err
	} else if memory > 0 {
		l.row("memory of Redis", "bytes/key", []float64{float64(after-memory) / float64(l.e.Marks)}, nil, harness.Goal{})
	}
	return nil
}

func (l *loaded) markAll(ctx context.Context) error {
	var next atomic.Int64
	var busy sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		busy.Go(func() { errs[w] = l.mark(ctx, &next) })
	}
	busy.Wait()
	return errors.Join(errs...)
}

// mark begins and marks keys until none is left.
func (l *loaded) mark(ctx context.Context, next *atomic.Int64) error {
	opts := l.e.oneGeneration("")
	var reqs []dedup.ClaimRequest
	var changes []dedup.Change
	for {
		to := next.Add(marksAtOnce)
		from := to - marksAtOnce
		if from >= int64(l.e.Marks) {
			return nil
		}
		reqs, changes = reqs[:0], changes[:0]
		for n := from; n < min(to, int64(l.e.Marks)); n++ {
			key := dedup.ID(id(uint64(n))) //nolint:gosec // from 0
			binary.BigEndian.PutUint64(key[8:], uint64(n)*0xff51afd7ed558ccd)
			reqs = append(reqs, dedup.ClaimRequest{ID: key, Token: dedup.Token(key), Lease: opts.Lease / 3, Hold: opts.Hold, Origin: l.o.origins[0]})
		}
		for i, a := range l.o.store.Claim(ctx, reqs) {
			if a.Err != nil || a.Outcome != dedup.Acquired {
				return fmt.Errorf("front: a new key is %v: %w", a.Outcome, errors.Join(a.Err))
			}
			changes = append(changes, dedup.Change{
				ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1, State: dedup.StateSucceeded, Lease: opts.Lease / 3,
				Hold: opts.Hold, Window: opts.Window, Landed: true, Until: time.Now().Add(opts.Lease / 3), Origin: l.o.origins[0],
			})
		}
		for _, a := range l.o.store.Finish(ctx, changes) {
			if a.Err != nil || !a.Held {
				return fmt.Errorf("front: a mark was not written: %w", errors.Join(a.Err))
			}
		}
	}
}

// load has the partition acquired by others, one after the other.
func (l *loaded) load(ctx context.Context) error {
	var took []float64
	var samples []harness.Sample
	for range min(l.e.Rounds, 3) {
		if err := l.o.held[0].Release(ctx); err != nil {
			return err
		}
		t, sample, err := l.time(ctx, func(ctx context.Context) (err error) {
			l.o.held[0], err = l.o.acquire(ctx, owned.Partition{Source: ownedSource, Number: 0, Count: ownedParts})
			return err
		})
		if err != nil {
			return err
		}
		if s := l.o.held[0].Stats(); s.OfMembers != int64(l.e.Marks) || s.Members < s.OfMembers {
			return fmt.Errorf("front: %d members were loaded, of %d that are counted and %d that were marked", s.Members, s.OfMembers, l.e.Marks)
		}
		took, samples = append(took, t), append(samples, sample)
	}
	l.row("acquired and loaded from the sets", "s", took, samples, harness.ValueAtMost(15, 0, "s"))
	return nil
}

func (l *loaded) time(ctx context.Context, do func(context.Context) error) (seconds float64, s harness.Sample, err error) {
	before, err := l.meter.Read(ctx)
	if err != nil {
		return 0, s, err
	}
	if err := do(ctx); err != nil {
		return 0, s, err
	}
	after, err := l.meter.Read(ctx)
	s = before.To(after, l.e.Marks)
	return float64(l.e.Marks) / s.Rate, s, err
}

// memory of Redis; 0 where it cannot be told.
func (l *loaded) memory(ctx context.Context) (int64, error) {
	if l.e.Redis.Embedded || !l.e.Redis.Own {
		return 0, nil
	}
	return l.e.Redis.Memory(ctx)
}

func (l *loaded) row(side, unit string, values []float64, samples []harness.Sample, goal harness.Goal) {
	r := harness.Row{
		Name: fmt.Sprintf("owned, a partition of %s marks, %s", short(l.e.Marks), side), Workload: loadFamily, Side: side, X: float64(l.e.Marks),
		Value: harness.Median(values), Unit: unit, Rounds: len(values), Goal: goal.String(),
	}
	var client, redis []float64
	for _, s := range samples {
		client, redis = append(client, s.ClientUS), append(redis, s.ServerUS)
	}
	r.ClientUS, r.ServerUS = harness.Median(client), harness.Median(redis)
	r.OK = goal.Reached(r.Value, 0)
	l.rows = append(l.rows, r)
}
