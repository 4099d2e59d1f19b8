package filterbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Sides of a stream: over partitions with one owner, and over a shared Redis.
const (
	ownedTwo    = "onceward owned"
	ownedOne    = "onceward owned, CompleteAndClaim"
	sharedTwo   = "onceward shared, full"
	sharedOne   = "onceward shared, full, CompleteAndClaim"
	sharedSmall = "onceward shared, compact"
	rawSide     = "raw RESP, two commands a key"
)

func (e *env) owned(all *harness.Groups) {
	for _, s := range []stream{{share: 0}, {share: 10}, {share: 50}, {share: 50, old: true},
		{share: 90}} {
		e.stream(all, s)
	}
}

func (e *env) stream(all *harness.Groups, s stream) {
	family, title := "owned", fmt.Sprintf("owned, %d %% duplicates", s.share)
	if s.old {
		family, title = "owned, old duplicates", title+", old ones"
	}
	all.Add(family, s.share, title, func(ctx context.Context, setup *harness.Setup) {
		compareOwned(setup, title, s.share == 0)
		e.openStream(ctx, setup, s)
	}).Detail = s.share == 10 || s.share == 90
}

// ownedKeys is the length of a stream. It is long enough to fill fresh sets. The timing includes
// the folds of all sets except the last, and so of nearly all keys.
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

type streamed struct {
	*harness.Setup

	e   *env
	now made // for the next timing, or the one that runs
}

func (e *env) openStream(ctx context.Context, setup *harness.Setup, s stream) {
	e.redis.Clear(ctx)
	e.built = nil // a heap of hundreds of megabytes would save the sides garbage collections
	st, n := &streamed{Setup: setup, e: e}, e.ownedKeys(s)
	setup.MinKeys, setup.MaxKeys, setup.Multiple = n, n, workers*batchIDs
	// The keys are made right before their timing.
	setup.Keys = func(n int) []string { st.now = s.make(n); return st.now.keys }
	setup.ServerCPU = e.redis.CPU()
	raw := work.DialRaw(ctx, setup, e.redis.Addr, workers)
	// the least that claim and completion cost without an owner: one command each, in pipelines
	st.side(rawSide, func(ctx context.Context, worker int, keys []string, did effect) (ran int) {
		for batch := range slices.Chunk(keys, batchIDs) {
			won := raw[worker].Claim(ctx, batch, work.RawToken, peer.Lease)
			for _, key := range won {
				did(key)
			}
			raw[worker].Complete(ctx, won, work.RawToken, "1", peer.Window)
			ran += len(won)
		}
		return ran
	}, nil)
	origins := [workers]driver.Origin{{Source: ownedSource}, {Source: ownedSource, Partition: 1}}
	shared := func(l work.Layout) batches {
		l = l.Expecting(n * (e.rounds + 3)) // for the keys of all timings
		return batches{l.Open(ctx, setup, e.redis.Addr, 0), &origins}
	}
	seen := shared(work.Full)
	st.side(sharedTwo, seen.apart, nil)
	st.side(sharedOne, seen.merged, nil)
	st.side(sharedSmall, shared(work.Compact).apart, nil)
	st.owner(ctx, ownedTwo, func(b batches) consumer { return b.apart })
	st.owner(ctx, ownedOne, func(b batches) consumer { return b.merged })
}

type effect func(key string)

// consumer runs each key of a worker's stream once. It returns how many it has run.
type consumer func(ctx context.Context, worker int, keys []string, did effect) int

// side adds a side. If its partitions have an owner, each timing gets new partitions, and folds the
// sets that it has filled.
func (st *streamed) side(name string, c consumer, o *owner) {
	did := func(key string) {
		if st.e.effect != nil {
			st.e.effect(name, key)
		}
	}
	all := func(ctx context.Context, keys []string, news int) {
		if ran := consumeAll(ctx, c, keys, news, did); o != nil && len(keys) > 0 {
			o.fold(ctx)
			o.proven(ran)
		}
	}
	st.Prepared(name, func(ctx context.Context, _ *harness.Timing) {
		if o != nil {
			o.take(ctx)
		}
		all(ctx, st.now.old, len(st.now.old))
	}, func(ctx context.Context, t *harness.Timing) { all(ctx, t.Keys, st.now.news) })
}

func (st *streamed) owner(ctx context.Context, side string, consume func(batches) consumer) {
	o := openOwned(ctx, st.Setup, st.e.redis.Addr, ownedOptions(ownedPlan))
	d := work.Open(st.Setup, o.store, dedup.Config{Namespace: "bench", Window: ownedWindow,
		Hold: ownedHold, LeaseTTL: ownedLease / 3, StoreTimeout: ownedLease / 6, SeenOnly: true})
	st.side(side, consume(batches{d, &o.origins}), o)
}

// compareOwned compares sides with the same number of exchanges; the raw commands have two.
func compareOwned(s *harness.Setup, title string, goals bool) {
	two, one := title+", batches of 256", title+", batches of 256, one exchange a batch"
	const least = ">= 1x"
	three := harness.When(goals, ">= 3x (stretch 5x)")
	third := harness.When(goals, "<= 0.333x (stretch 0.2x)")
	s.Compare(ownedTwo, rawSide).Called(two).Wants(three)
	s.Compare(ownedTwo, sharedTwo).Called(two).Wants(least)
	s.Compare(ownedTwo, sharedSmall).Called(two).Wants(least)
	s.Compare(ownedOne, rawSide).Called(one).Wants(three)
	s.Compare(ownedOne, sharedOne).Called(one).Wants(least)
	s.Compare(ownedTwo, rawSide).Called(two + ", Redis CPU").In(harness.ServerMicros).Wants(third)
	s.Compare(ownedTwo, sharedTwo).Called(two + ", Redis CPU").In(harness.ServerMicros)
	s.Compare(ownedOne, rawSide).Called(one + ", Redis CPU").In(harness.ServerMicros).Wants(third)
	s.Compare(rawSide, "").Called(two)
	for _, side := range []string{sharedTwo, sharedOne, sharedSmall} {
		s.Compare(side, rawSide).Called(two)
	}
}

// consumeAll has every worker consume its half of keys; news is the number of new keys. It fails
// unless exactly the new keys have run, because the timing would measure something else.
func consumeAll(ctx context.Context, c consumer, keys []string, news int, did effect) int {
	var counts [workers]int
	work.Parallel(ctx, workers, func(ctx context.Context, w int) {
		counts[w] = c(ctx, w, part(keys, w), did)
	})
	ran := counts[0] + counts[1]
	must.True(ran == news, "filterbench: %d keys ran, of %d that are new", ran, news)
	return ran
}

// batches consumes as kafkaadapter does. Its requests have origins, like those of kafkaadapter.
type batches struct {
	*work.Deduper

	origins *[workers]driver.Origin
}

// apart claims each batch in one exchange, runs its new keys, and ends it in a second exchange.
func (b batches) apart(ctx context.Context, worker int, keys []string, did effect) (ran int) {
	reqs := make([]dedup.Request, 0, batchIDs)
	for batch := range slices.Chunk(keys, batchIDs) {
		reqs = b.requests(reqs[:0], worker, batch)
		done := won(must.Get(b.ClaimBatch(ctx, reqs)), did)
		b.Complete(ctx, done)
		ran += len(done)
	}
	return ran
}

// merged ends each batch in the exchange that claims the next one.
func (b batches) merged(ctx context.Context, worker int, keys []string, did effect) (ran int) {
	reqs, done := make([]dedup.Request, 0, batchIDs), []dedup.Completion(nil)
	for batch := range slices.Chunk(keys, batchIDs) {
		reqs = b.requests(reqs[:0], worker, batch)
		claims := b.Next(ctx, done, reqs)
		ran += len(done)
		done = won(claims, did)
	}
	b.Complete(ctx, done)
	return ran + len(done)
}

func (b batches) requests(reqs []dedup.Request, worker int, batch []string) []dedup.Request {
	for _, key := range batch {
		reqs = append(reqs, dedup.Request{Key: key, Origin: b.origins[worker]})
	}
	return reqs
}

// won runs the new keys. In a stream, more than a batch lies between a key and its repetition.
func won(claims []*dedup.Claim, did effect) []dedup.Completion {
	done := work.Won(claims, nil, []driver.Outcome{dedup.Acquired, dedup.Duplicate})
	for _, c := range done {
		did(c.Claim.Key)
	}
	return done
}

const (
	// workers is how many batches are in work at once: one consumer has two partitions, and each
	// has half of a stream.
	workers = 2
	// gap is the least distance between a key and its repetition. At that distance, the batch of
	// the key has ended when the key is repeated, even if each batch ends in the exchange that
	// claims the next one.
	gap = 2 * batchIDs
	// recentSpan is the largest distance between a key and a recent repetition.
	recentSpan = 8192
)

// stream says what a consumer gets.
type stream struct {
	share int  // percent of duplicates
	old   bool // they repeat keys of long ago, not of this stream
}

type made struct {
	keys []string // the halves of the workers, one after the other
	old  []string // keys that ended before the stream begins, in the same order
	news int      // number of keys that have to run
}

// make makes a stream of n new keys; n is a multiple of the workers' batches. The duplicates are
// always at the same places.
func (s stream) make(n int) made {
	m := made{keys: harness.FreshKeys(n), news: n}
	for w := range workers {
		mine := part(m.keys, w)
		rng := rand.New(rand.NewPCG(uint64(w), uint64(s.share))) // the same for all sides
		for i := range mine {
			if !repeats(i, s.share) || !s.old && i < gap {
				continue
			}
			if m.news--; s.old {
				m.old = append(m.old, mine[i])
			} else {
				mine[i] = mine[i-gap-rng.IntN(min(i-gap+1, recentSpan))]
			}
		}
	}
	return m
}

// repeats spreads the duplicates evenly.
func repeats(i, share int) bool { return share > 0 && i*share%100+share >= 100 }

func part(keys []string, worker int) []string {
	half := len(keys) / workers
	return keys[worker*half : (worker+1)*half]
}
