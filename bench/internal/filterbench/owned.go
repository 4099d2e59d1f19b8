package filterbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/owned"
	"github.com/onceward/onceward/redisadapter"
)

// Sides of a stream over partitions that have one owner, and over a shared Redis.
const (
	ownedTwo    = "onceward owned"
	ownedOne    = "onceward owned, CompleteAndClaim"
	sharedTwo   = "onceward shared, seen-only"
	sharedOne   = "onceward shared, seen-only, CompleteAndClaim"
	sharedSmall = "onceward shared, compact"
	rawSide     = "raw RESP, two commands a key"
)

// owned: batches of streams, with an owner and without.
func (e *env) owned() []harness.Group {
	if e.redis == nil {
		return nil
	}
	var all []harness.Group
	for _, share := range shares {
		all = append(all, e.ownedGroup(stream{share: share},
			fmt.Sprintf("owned, %d %% duplicates", share)))
		if share == 50 {
			all = append(all, e.ownedGroup(stream{share, true},
				fmt.Sprintf("owned, %d %% duplicates, old ones", share)))
		}
	}
	return all
}

func (e *env) ownedGroup(s stream, title string) harness.Group {
	family := "owned"
	if s.old {
		family = "owned, old duplicates"
	}
	return harness.Group{
		Workload: family, X: float64(s.share), Title: title, Detail: s.share == 10 || s.share == 90,
		Open: func(ctx context.Context, setup *harness.Setup) error {
			return e.openOwnedStream(ctx, setup, s, title)
		},
	}
}

// ownedKeys is how long a stream is: long enough to fill fresh sets, all but the last of which are
// folded within the timing, and so are nearly all of its keys.
func (e *env) ownedKeys(s stream) int {
	const step = workers * batchIDs
	if e.freshSets == 0 {
		return 4 * step
	}
	fresh := 100 - s.share
	sets := max(1, (e.freshSets*fresh+50)/100)
	half := (sets*freshMembers + batchIDs) * 100 / fresh
	return (workers*half + step - 1) / step * step
}

// streamed are the sides of a group, and what they run.
type streamed struct {
	*harness.Setup

	e   *env
	now made // of the timing that comes, or runs
}

func (e *env) openOwnedStream(ctx context.Context, setup *harness.Setup, s stream,
	title string) error {
	if e.redis.Own {
		if err := e.redis.Empty(ctx); err != nil {
			return err
		}
	}
	e.built = nil // a heap of hundreds of megabytes would spare the sides their garbage collections
	st, n := &streamed{Setup: setup, e: e}, e.ownedKeys(s)
	setup.MinKeys, setup.MaxKeys, setup.Multiple = n, n, workers*batchIDs
	// right before its timing
	setup.Keys = func(n int) []string { st.now = s.make(n); return st.now.keys }
	setup.ServerCPU = e.redis.CPU()
	setup.Pair(ownedPairs(title, s)...)
	raw, err := work.DialRaw(ctx, setup, e.redis.Addr, workers)
	if err != nil {
		return err
	}
	st.side(rawSide, rawCycle{raw, st.effect(rawSide)}, nil, nil)
	if err := st.shared(ctx, n*(e.rounds+3)); err != nil { // keys of all timings
		return err
	}
	return errors.Join(st.owner(ctx, ownedTwo), st.owner(ctx, ownedOne))
}

// side adds one. before prepares what c runs on; after is work of the timing as well. Nil: nothing.
func (st *streamed) side(name string, c consumer, before func(context.Context) error,
	after func(ctx context.Context, ran int) error) {
	st.Sides = append(st.Sides, harness.Side{
		Name: name,
		Prepare: func(ctx context.Context, _ *harness.Timing) error {
			if before != nil {
				if err := before(ctx); err != nil {
					return err
				}
			}
			return consumeAll(ctx, c, st.now.old, len(st.now.old), after)
		},
		Run: func(ctx context.Context, t *harness.Timing) error {
			return consumeAll(ctx, c, t.Keys, st.now.news, after)
		},
	})
}

func (st *streamed) effect(side string) func(string) {
	if st.e.effect == nil {
		return nil
	}
	return func(key string) { st.e.effect(side, key) }
}

func (st *streamed) shared(ctx context.Context, keys int) error {
	origins := [workers]dedup.Origin{{Source: ownedSource}, {Source: ownedSource, Partition: 1}}
	for _, kind := range []redisadapter.Layout{redisadapter.SeenOnly, redisadapter.Compact} {
		d, err := work.Of(kind).Expecting(keys).Open(ctx, st.Setup, st.e.redis.Addr, 0)
		if err != nil {
			return err
		}
		two := func(side string) batches { return batches{d.Deduper, &origins, st.effect(side)} }
		if kind == redisadapter.Compact {
			st.side(sharedSmall, two(sharedSmall), nil, nil)
			continue
		}
		st.side(sharedTwo, two(sharedTwo), nil, nil)
		st.side(sharedOne, merged{two(sharedOne)}, nil, nil)
	}
	return nil
}

func (st *streamed) owner(ctx context.Context, side string) error {
	o, err := openOwned(ctx, st.Setup, st.e.redis.Addr, func(prefix string) owned.Options {
		return ownedOptions(prefix, ownedPlan)
	})
	if err != nil {
		return err
	}
	const lease = 10 * time.Second // a third of the partition's
	d, err := dedup.New(o.store, dedup.Config{
		Namespace: "bench", Window: 24 * time.Hour, Hold: time.Hour, LeaseTTL: lease,
		StoreTimeout: lease / 2, SeenOnly: true,
	})
	if err != nil {
		return err
	}
	two := batches{d, &o.origins, st.effect(side)}
	c := consumer(two)
	if side == ownedOne {
		c = merged{two}
	}
	st.side(side, c, o.take, func(ctx context.Context, ran int) error {
		return errors.Join(o.fold(ctx), o.proven(ran))
	})
	return nil
}

// ownedPairs compares what has the same number of trips; the raw commands have two.
func ownedPairs(title string, s stream) []harness.Pair {
	var pairs []harness.Pair
	add := func(side, against string, cpu bool, goal harness.Goal) {
		p := harness.Pair{Name: title + ", batches of 256", Side: side, Against: against,
			Goal: goal}
		if side == ownedOne {
			p.Name += ", one exchange a batch"
		}
		if cpu {
			p.Name, p.Metric = p.Name+", Redis CPU", harness.ServerMicros
		}
		pairs = append(pairs, p)
	}
	least, three, third := harness.AtLeast(1, 0), harness.When(s.share == 0, harness.AtLeast(3, 5)),
		harness.When(s.share == 0, harness.AtMost(0.333, 0.2))
	add(ownedTwo, rawSide, false, three)
	add(ownedTwo, sharedTwo, false, least)
	add(ownedTwo, sharedSmall, false, least)
	add(ownedOne, rawSide, false, three)
	add(ownedOne, sharedOne, false, least)
	add(ownedTwo, rawSide, true, third)
	add(ownedTwo, sharedTwo, true, noGoal)
	add(ownedOne, rawSide, true, third)
	add(rawSide, "", false, noGoal)
	for _, side := range []string{sharedTwo, sharedOne, sharedSmall} {
		add(side, rawSide, false, noGoal)
	}
	return pairs
}

// consumer runs the keys of a stream, each once. It says how many it has run.
type consumer interface {
	run(ctx context.Context, worker int, keys []string) (int, error)
}

// consumeAll has every worker run its half of keys, of which so many are new. A side that ran
// another number has measured something else.
func consumeAll(ctx context.Context, c consumer, keys []string, news int,
	after func(context.Context, int) error) error {
	var counts [workers]int
	err := work.Parallel(ctx, workers, func(ctx context.Context, w int) (err error) {
		counts[w], err = c.run(ctx, w, part(keys, w))
		return err
	})
	ran := counts[0] + counts[1]
	switch {
	case err != nil:
		return err
	case ran != news:
		return fmt.Errorf("filterbench: %d keys ran, of %d that are new", ran, news)
	case after == nil || len(keys) == 0:
		return nil
	default:
		return after(ctx, ran)
	}
}

// rawCycle is the least that claim and completion cost without an owner: a command each, in
// pipelines.
type rawCycle struct {
	conns  work.Raw
	effect func(key string) // of a test; nil otherwise
}

func (r rawCycle) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	for batch := range slices.Chunk(keys, batchIDs) {
		won, err := r.conns[worker].Claim(ctx, batch, work.RawToken, peer.Lease)
		if err != nil {
			return ran, err
		}
		if r.effect != nil {
			for _, key := range won {
				r.effect(key)
			}
		}
		if err := r.conns[worker].Complete(ctx, won, work.RawToken, "1", peer.Window); err != nil {
			return ran, err
		}
		ran += len(won)
	}
	return ran, nil
}

// batches claims a batch, runs what is new and ends it, as kafkaadapter does: in two trips. The
// requests say where they come from, as its do.
type batches struct {
	d       *dedup.Deduper
	origins *[workers]dedup.Origin
	effect  func(key string)
}

func (b batches) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	for reqs := range b.requests(worker, keys) {
		claims, err := b.d.ClaimBatch(ctx, reqs)
		if err != nil {
			return ran, err
		}
		done, err := b.won(claims)
		if err != nil {
			return ran, err
		}
		if err := errors.Join(b.d.CompleteBatch(ctx, done)...); err != nil {
			return ran, err
		}
		ran += len(done)
	}
	return ran, nil
}

// merged ends each batch in the trip that claims the next one.
type merged struct{ batches }

func (m merged) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	var done []dedup.Completion
	for reqs := range m.requests(worker, keys) {
		errs, claims, err := m.d.CompleteAndClaim(ctx, done, reqs)
		if err := errors.Join(append(errs, err)...); err != nil {
			return ran, err
		}
		ran += len(done)
		if done, err = m.won(claims); err != nil {
			return ran, err
		}
	}
	return ran + len(done), errors.Join(m.d.CompleteBatch(ctx, done)...)
}

// requests of each batch, in a slice that is used again.
func (b batches) requests(worker int, keys []string) func(yield func([]dedup.Request) bool) {
	return func(yield func([]dedup.Request) bool) {
		reqs := make([]dedup.Request, 0, batchIDs)
		for batch := range slices.Chunk(keys, batchIDs) {
			reqs = reqs[:0]
			for _, key := range batch {
				reqs = append(reqs, dedup.Request{Key: key, Origin: b.origins[worker]})
			}
			if !yield(reqs) {
				return
			}
		}
	}
}

// won runs the keys that are new. Streams leave more than a batch between a key and its repetition.
func (b batches) won(claims []*dedup.Claim) ([]dedup.Completion, error) {
	done, err := work.Won(claims, nil, []dedup.Outcome{dedup.Acquired, dedup.Duplicate})
	if b.effect != nil {
		for _, c := range done {
			b.effect(c.Claim.Key)
		}
	}
	return done, err
}
