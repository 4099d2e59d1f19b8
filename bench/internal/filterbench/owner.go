package filterbench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

const (
	freshMembers = 16 << 10 // members of a set of ownedPlan before the set is folded
	ownedPlan    = 370_000  // keys per window and partition: about twelve million with 32 of them
	ownedParts   = 256      // each timing uses new ones
	ownedWindow  = 24 * time.Hour
	ownedHold    = time.Hour
	ownedLease   = 30 * time.Second
)

type owner struct {
	client  *redis.Client
	store   *owned.Store
	prefix  string
	held    [workers]*owned.Ownership
	origins [workers]driver.Origin
	used    int32 // number of partitions
	ran     int   // number of keys in the held partitions
	nudge   *owned.Ownership
}

func ownedOptions(keys int) owned.Options {
	return owned.Options{Secret: []byte("secret of the benchmarks"), Window: ownedWindow,
		Hold: ownedHold, Lease: ownedLease, ExpectedKeys: keys}
}

// openOwned makes a store with a prefix of its own, until the setup ends.
func openOwned(ctx context.Context, s *harness.Setup, addr string, opts owned.Options) *owner {
	o := &owner{client: server.NewClient(s, addr, 0, 0), prefix: "o" + harness.Fresh()[:8]}
	opts.Prefix = o.prefix
	inner := must.Get(redisadapter.New(ctx, o.client, redisadapter.Options{
		Prefix: o.prefix + "i", WrappedBy: owned.Name, OnFinding: func(preflight.Finding) {}}))
	must.Do(owned.Init(ctx, o.client, opts))
	o.store = must.Get(owned.New(ctx, o.client, inner, opts))
	s.DeferCtx(o.store.Close)
	return o
}

const ownedSource = "group/topic"

// take gives up the held partitions and acquires new ones, in which no key is known.
func (o *owner) take(ctx context.Context) {
	o.ran = 0
	for w := range workers {
		if o.held[w] != nil {
			must.Do(o.held[w].Release(ctx))
		}
		must.True(o.used < ownedParts, "filterbench: all %d partitions were used", ownedParts)
		o.held[w] = o.acquire(ctx, o.used)
		o.origins[w] = driver.Origin{Source: ownedSource, Partition: o.used}
		o.used++
	}
}

func (o *owner) acquire(ctx context.Context, number int32) *owned.Ownership {
	own := must.Get(o.store.Acquire(ctx,
		owned.Partition{Source: ownedSource, Number: number, Count: ownedParts}))
	work.Until(ctx, func(int) bool {
		must.Do(context.Cause(own.Context()))
		return own.Stats().Loaded
	})
	return own
}

// fold waits until the full sets have been folded. Otherwise the store would fold the sets of one
// timing while another side is timed. The store looks for full sets with its renewals, which are
// seconds apart, and when it acquires a partition. So fold has it acquire a partition.
func (o *owner) fold(ctx context.Context) {
	work.Until(ctx, func(n int) bool {
		folded := !slices.ContainsFunc(o.origins[:], func(from driver.Origin) bool {
			return o.unfolded(ctx, from.Partition) > 0
		})
		if !folded && n%50 == 0 {
			if o.nudge != nil {
				must.Do(o.nudge.Release(ctx))
			}
			o.nudge = must.Get(o.store.Acquire(ctx, owned.Partition{Source: "nobody", Count: 1}))
		}
		return folded
	})
}

// unfolded counts the full sets of a partition that are not folded yet.
func (o *owner) unfolded(ctx context.Context, number int32) (sets uint64) {
	counted := uint32(number) // partitions count from 0
	tag := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(ownedSource+"\x00"), counted))
	fields := must.Get(o.client.HGetAll(ctx,
		fmt.Sprintf("%s:{%x}:head", o.prefix, tag[:8])).Result())
	must.True(len(fields) > 0, "filterbench: partition %d has no head", number)
	for name, newest := range fields {
		gen, ok := strings.CutPrefix(name, "new:")
		if !ok {
			continue
		}
		full := max(must.Get(strconv.ParseUint(newest, 10, 64)), 1) - 1
		if folded := fields["fold:"+gen]; folded != "" {
			full -= min(full, must.Get(strconv.ParseUint(folded, 10, 64)))
		}
		sets += full
	}
	return sets
}

// proven adds to the number of new keys that have run. It fails unless nearly all of them began
// without a claim of the inner store: otherwise the timing would measure that store.
func (o *owner) proven(ran int) {
	o.ran += ran
	saved := int(o.held[0].Stats().Saved + o.held[1].Stats().Saved)
	must.True(saved >= o.ran*99/100,
		"filterbench: %d keys were begun without a claim, of %d that were new", saved, o.ran)
}

// marksAtOnce is how many keys are begun or marked in one call, which is the limit of a call.
const marksAtOnce = 4096

// load adds how long a new owner of a partition takes to read its marks, and how much memory they
// take.
func (e *env) load(all *harness.Groups) {
	all.Add("owned load", e.marks, fmt.Sprintf("owned, load of %s marks", harness.Short(e.marks)),
		e.measureLoad)
}

func (e *env) measureLoad(ctx context.Context, s *harness.Setup) {
	e.redis.Clear(ctx)
	e.built = nil
	o := openOwned(ctx, s, e.redis.Addr, e.oneGeneration())
	o.take(ctx)
	name := fmt.Sprintf("owned, a partition of %s marks, ", harness.Short(e.marks))
	timed := func(do func()) harness.Sample {
		return harness.Meter{ServerCPU: e.redis.CPU()}.Measure(ctx,
			func() int { do(); return e.marks })
	}
	row := func(side string, samples ...harness.Sample) *harness.Row {
		var took []float64 // for all marks
		for _, s := range samples {
			took = append(took, float64(e.marks)/s.Rate)
		}
		usage := harness.UsageOf(samples)
		r := s.Figure(name+side, side, harness.Median(took), "s")
		r.Rounds, r.ClientUS, r.ServerUS = len(samples), usage.ClientUS, usage.ServerUS
		return r
	}
	before := e.redis.Memory(ctx)
	row("begun, marked and folded, in batches of 4096", timed(func() {
		o.markAll(ctx, e.marks)
		o.fold(ctx)
	}))
	if before > 0 {
		s.Figure(name+"memory of Redis", "memory of Redis",
			float64(e.redis.Memory(ctx)-before)/float64(e.marks), "bytes/key")
	}
	var samples []harness.Sample
	for range min(e.rounds, 3) { // acquired by one owner after another
		must.Do(o.held[0].Release(ctx))
		samples = append(samples, timed(func() { o.held[0] = o.acquire(ctx, 0) }))
		s := o.held[0].Stats()
		must.True(s.OfMembers == int64(e.marks) && s.Members >= s.OfMembers,
			"filterbench: %d members were loaded, of %d that are counted and %d that were marked",
			s.Members, s.OfMembers, e.marks)
	}
	row("acquired and loaded from the sets", samples...).Wants("<= 15 s")
}

// oneGeneration plans one generation for all marks, because they come within minutes. The buckets
// are then as full as planned.
func (e *env) oneGeneration() owned.Options {
	const kept = float64(ownedWindow) / float64(ownedWindow+ownedHold)
	opts := ownedOptions(int(4 * kept * float64(e.marks)))
	opts.InFlight = 4 * workers * marksAtOnce
	return opts
}

// markAll begins and ends the wanted number of keys in the first partition.
func (o *owner) markAll(ctx context.Context, marks int) {
	var reqs [workers][]driver.ClaimRequest
	var changes [workers][]driver.Finish
	work.Share(ctx, workers, marksAtOnce, marks, func(ctx context.Context, w, from, to int) {
		mine := reqs[w][:0]
		for n := uint64(from); n < uint64(to); n++ { // from is 0 or more
			key := driver.ID(id(n))
			binary.BigEndian.PutUint64(key[8:], n*0xff51afd7ed558ccd)
			mine = append(mine, driver.ClaimRequest{ID: key, Token: driver.Token(key),
				Lease: ownedLease / 3, Hold: ownedHold, Origin: o.origins[0]})
		}
		reqs[w], changes[w] = mine, o.mark(ctx, mine, changes[w][:0])
	})
}

// mark begins keys and ends them. It reuses changes, and returns it for the next call.
func (o *owner) mark(ctx context.Context, reqs []driver.ClaimRequest,
	changes []driver.Finish) []driver.Finish {
	for i, a := range o.store.Claim(ctx, reqs) {
		if a.Err != nil || a.Outcome != dedup.Acquired {
			must.Do(fmt.Errorf("a new key is %v: %w", a.Outcome, errors.Join(a.Err)))
		}
		changes = append(changes, driver.Finish{
			ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
			State: driver.StateSucceeded, Lease: reqs[i].Lease, Hold: reqs[i].Hold,
			Window: ownedWindow, EffectApplied: true, Until: time.Now().Add(reqs[i].Lease),
			Origin: o.origins[0],
		})
	}
	for _, a := range o.store.Finish(ctx, changes) {
		if a.Err != nil || !a.Held {
			must.Do(fmt.Errorf("a mark was not written: %w", errors.Join(a.Err)))
		}
	}
	return changes
}
