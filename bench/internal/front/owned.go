package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/workload"
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

// Families of their rows: by what duplicates repeat.
const (
	ownedRecent = "owned"
	ownedOld    = "owned, old duplicates"
)

// owned: batches of streams, with an owner and without.
func (e *Env) owned() []harness.Group {
	if e.Redis == nil {
		return nil
	}
	var all []harness.Group
	for _, share := range shares {
		s := stream{share: share}
		all = append(all, e.ownedGroup(s, fmt.Sprintf("owned, %d %% duplicates", share)))
		if share == 50 {
			s.old = true
			all = append(all, e.ownedGroup(s, fmt.Sprintf("owned, %d %% duplicates, old ones", share)))
		}
	}
	return all
}

func (e *Env) ownedGroup(s stream, title string) harness.Group {
	family := ownedRecent
	if s.old {
		family = ownedOld
	}
	return harness.Group{
		Workload: family, X: float64(s.share), Title: title, Detail: s.share == 10 || s.share == 90,
		Open: func(ctx context.Context) (harness.Setup, error) { return e.openOwnedStream(ctx, s, title) },
	}
}

// ownedKeys is how long a stream is: long enough to fill fresh sets, all but the last of which are folded
// within the timing, and so are nearly all of its keys.
func (e *Env) ownedKeys(s stream) int {
	const step = workers * batchIDs
	if e.FreshSets == 0 {
		return 4 * step
	}
	fresh := 100 - s.share
	sets := max(1, (e.FreshSets*fresh+50)/100)
	half := (sets*freshMembers + batchIDs) * 100 / fresh
	return (workers*half + step - 1) / step * step
}

// streamed are the sides of a group, and what they run.
type streamed struct {
	e     *Env
	s     stream
	n     int
	now   made // of the timing that comes, or runs
	setup harness.Setup
	shut  []func() error
}

func (e *Env) openOwnedStream(ctx context.Context, s stream, title string) (harness.Setup, error) {
	if e.Redis.Own {
		if err := e.Redis.Empty(ctx); err != nil {
			return harness.Setup{}, err
		}
	}
	e.built = nil // a heap of hundreds of megabytes would spare the sides their garbage collections
	st := &streamed{e: e, s: s, n: e.ownedKeys(s)}
	err := errors.Join(st.raw(ctx), st.shared(ctx))
	if err == nil {
		err = errors.Join(st.owner(ctx, ownedTwo), st.owner(ctx, ownedOne))
	}
	if err != nil {
		return harness.Setup{}, errors.Join(err, st.close())
	}
	st.setup.Pairs = ownedPairs(title, s)
	st.setup.MinKeys, st.setup.MaxKeys, st.setup.Multiple = st.n, st.n, workers*batchIDs
	st.setup.Keys = func(n int) []string { st.now = s.make(n); return st.now.keys } // right before its timing
	st.setup.Close = func() { _ = st.close() }
	if !e.Redis.Embedded {
		st.setup.ServerCPU = e.Redis.CPU
	}
	return st.setup, nil
}

func (st *streamed) close() error {
	var err error
	for _, shut := range st.shut {
		err = errors.Join(err, shut())
	}
	return err
}

// side adds one. before prepares what c runs on; after is work of the timing as well. Nil: nothing.
func (st *streamed) side(name string, c consumer, before func(context.Context) error, after func(ctx context.Context, ran int) error) {
	st.setup.Sides = append(st.setup.Sides, harness.Side{
		Name: name,
		Prepare: func(ctx context.Context, _ *harness.Timing) error {
			if before != nil {
				if err := before(ctx); err != nil {
					return err
				}
			}
			return st.all(ctx, c, st.now.old, len(st.now.old), after)
		},
		Run: func(ctx context.Context, t *harness.Timing) error { return st.all(ctx, c, t.Keys, st.now.news, after) },
	})
}

// all consumes keys, of which so many are new. A side that ran another number has measured something else.
func (st *streamed) all(ctx context.Context, c consumer, keys []string, news int, after func(context.Context, int) error) error {
	ran, err := consume(ctx, c, keys)
	if err == nil && ran != news {
		err = fmt.Errorf("front: %d keys ran, of %d that are new", ran, news)
	}
	if err == nil && after != nil && len(keys) > 0 {
		err = after(ctx, ran)
	}
	return err
}

func (st *streamed) effect(side string) func(string) {
	if st.e.effect == nil {
		return nil
	}
	return func(key string) { st.e.effect(side, key) }
}

func (st *streamed) raw(ctx context.Context) error {
	r, err := dialRaw(ctx, st.e.Redis.Addr, st.effect(rawSide))
	if err != nil {
		return err
	}
	st.shut = append(st.shut, func() error { r.close(); return nil })
	st.side(rawSide, r, nil, nil)
	return nil
}

func (st *streamed) shared(ctx context.Context) error {
	origins := [workers]dedup.Origin{{Source: ownedSource}, {Source: ownedSource, Partition: 1}}
	keys := st.n * (st.e.Rounds + 3) // of all timings
	for _, kind := range []redisadapter.Layout{redisadapter.SeenOnly, redisadapter.Compact} {
		d, shut, err := workload.OpenDeduperFor(ctx, st.e.Redis.Addr, kind, keys)
		if err != nil {
			return err
		}
		st.shut = append(st.shut, func() error { shut(); return nil })
		two := func(side string) batches { return batches{d, &origins, st.effect(side)} }
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
	o, err := openOwned(ctx, st.e.Redis.Addr, func(prefix string) owned.Options { return ownedOptions(prefix, ownedPlan) })
	if err != nil {
		return err
	}
	st.shut = append(st.shut, o.close)
	const lease = 10 * time.Second // a third of the partition's
	d, err := dedup.New(o.store, dedup.Config{
		Namespace: "bench", Window: 24 * time.Hour, Hold: time.Hour, LeaseTTL: lease, StoreTimeout: lease / 2, SeenOnly: true,
	})
	if err != nil {
		return err
	}
	two := batches{d, &o.origins, st.effect(side)}
	c := consumer(two)
	if side == ownedOne {
		c = merged{two}
	}
	st.side(side, c, o.take, func(ctx context.Context, ran int) error { return errors.Join(o.fold(ctx), o.proven(ran)) })
	return nil
}

// ownedPairs compares what has the same number of trips; the raw commands have two.
func ownedPairs(title string, s stream) []harness.Pair {
	var beside, third harness.Goal
	if s.share == 0 {
		beside, third = harness.AtLeast(3, 5), harness.AtMost(0.333, 0.2)
	}
	pair := func(side, against string, goal harness.Goal) harness.Pair {
		name := title + ", batches of 256"
		if side == ownedOne {
			name += ", one trip a batch"
		}
		return harness.Pair{Name: name, Side: side, Against: against, Goal: goal}
	}
	cpu := func(side, against string, goal harness.Goal) harness.Pair {
		p := pair(side, against, goal)
		p.Name, p.Metric = p.Name+", Redis CPU", harness.ServerMicros
		return p
	}
	least := harness.AtLeast(1, 0)
	return []harness.Pair{
		pair(ownedTwo, rawSide, beside), pair(ownedTwo, sharedTwo, least), pair(ownedTwo, sharedSmall, least),
		pair(ownedOne, rawSide, beside), pair(ownedOne, sharedOne, least),
		cpu(ownedTwo, rawSide, third), cpu(ownedTwo, sharedTwo, harness.Goal{}), cpu(ownedOne, rawSide, third),
		pair(rawSide, "", harness.Goal{}), pair(sharedTwo, rawSide, harness.Goal{}), pair(sharedOne, rawSide, harness.Goal{}),
		pair(sharedSmall, rawSide, harness.Goal{}),
	}
}
