package owned

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// counts fails when the counts in head are wrong, or when one of the marked IDs is in no set.
func (o *Ownership) counts(t testing.TB, marked []driver.ID) {
	t.Helper()
	head := o.state(t)
	r := reader{o.s.client}
	there := map[int64]bool{}
	for gen, g := range head.Gens {
		l := o.loader()
		for kind, sets := range map[string]script.Gen{"fresh": {Folded: g.Folded,
			Newest: g.Newest}, "kept": {Kept: 1}} {
			keys, err := l.keys(gen, sets)
			noErr(t, err)
			if kind == "fresh" && g.Folded > 0 {
				keys = keys[:g.Newest-g.Folded]
			}
			cards, err := r.count(t.Context(), keys)
			noErr(t, err)
			found := int64(0)
			noErr(t, r.each(t.Context(), keys, cards, func(members []int64) error {
				found += int64(len(members))
				for _, m := range members {
					there[m] = true
				}
				return nil
			}))
			want := map[string]int64{"fresh": g.Fresh, "kept": g.Kept}[kind]
			assert.Equal(t, want, found, "generation %d: what head counts of %s", gen, kind)
		}
	}
	for i := range marked {
		m := o.s.members.of(&marked[i])
		require.True(t, there[m], "of %d marks that of %d is gone", len(marked), i)
	}
}

// fewBuckets are options with two pipelines of buckets.
func fewBuckets(prefix string) Options {
	o := setOptions(prefix)
	o.ExpectedKeys = 480
	return o
}

// filled is an owner with two full sets and one that is written to.
func filled(t testing.TB, client redis.UniversalClient, prefix string) (*Ownership, []driver.ID) {
	t.Helper()
	o := takeLoaded(t, plainStore(t, client, fewBuckets(prefix)), somePartition)
	o.foldAtOnce = 40
	ids := idsOf(t, "marked", 90)
	o.mark(t, ids[:60]) // two calls
	o.nextSet()
	o.mark(t, ids[60:80])
	o.nextSet()
	o.mark(t, ids[80:])
	return o, ids
}

// TestFold: marks move to buckets, all of them, and are found there.
func TestFold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		o, ids := filled(t, b.Client, b.Prefix)
		noErr(t, o.fold(t.Context()))
		g := o.state(t).Gens[o.genNow()]
		assert.EqualValues(t, 2, g.Folded, "what head counts")
		assert.EqualValues(t, 3, g.Newest)
		assert.EqualValues(t, 80, g.Kept)
		assert.EqualValues(t, 10, g.Fresh)
		assert.EqualValues(t, 2, o.sets[o.genNow()].Folded, "as the owner knows")
		assert.True(t, o.sets[o.genNow()].folding, "as the owner knows")
		o.counts(t, ids)
		found, err := o.s.askForeign(t.Context(), []partitionRecord{{names: o.names}},
			membersOf(o, ids))
		noErr(t, err)
		for i, f := range found {
			require.True(t, f.done, "mark %d is not found", i)
		}
		noErr(t, o.fold(t.Context())) // nothing is left to do
		o.counts(t, ids)
	})
}

func membersOf(o *Ownership, ids []driver.ID) []int64 {
	all := make([]int64, len(ids))
	for i := range ids {
		all[i] = o.s.members.of(&ids[i])
	}
	return all
}

// TestFoldKilledAnywhere cuts the owner off at every command of a fold. The next owner finds every
// mark, and folds what was left.
func TestFoldKilledAnywhere(t *testing.T) {
	_, client := redistest.Mini(t)
	for _, after := range []bool{false, true} {
		for at := int64(1); ; at++ {
			o, ids := filled(t, client, fmt.Sprintf("f%t%d", after, at))
			// a slow answer is not a cut
			dying := redistest.Client(t,
				&redis.Options{Addr: client.Options().Addr, MaxRetries: -1,
					ReadTimeout: time.Minute})
			s := &saboteur{at: at, after: after}
			dying.AddHook(s)
			whole, runner := o.s.client, o.s.runner
			o.s.client, o.s.runner = dying, script.NewRunner(dying)
			err := o.fold(t.Context())
			o.s.client, o.s.runner = whole, runner
			assert.Equal(t, err != nil, s.struck.Load(), "cut at %d, %t", at, after)
			o.counts(t, ids)
			letGo(t, o)
			next := takeLoaded(t, o.s, somePartition)
			next.knows(t, ids)
			noErr(t, next.fold(t.Context()))
			next.counts(t, ids)
			g := next.state(t).Gens[next.genNow()]
			assert.EqualValues(t, 2, g.Folded, "cut at %d, %t: the next owner folds", at, after)
			assert.EqualValues(t, 80, g.Kept, "cut at %d, %t: the next owner folds", at, after)
			letGo(t, next)
			// miniredis sorts all its keys with every command
			noErr(t, client.FlushAll(t.Context()).Err())
			if !s.struck.Load() {
				assert.GreaterOrEqual(t, at, int64(5), "the test does not cut where it should")
				break
			}
		}
	}
}

// TestFoldWhileForgetting has keys forgotten before each command of a fold: none of them comes
// back, and no other one goes.
func TestFoldWhileForgetting(t *testing.T) {
	_, client := redistest.Mini(t)
	for step := int64(1); ; step++ {
		o, ids := filled(t, client, fmt.Sprint("forget", step))
		hooked := redistest.Patient(t, client.Options().Addr)
		steps := &stepper{do: func(int64) {}}
		hooked.AddHook(steps)
		whole, runner := o.s.client, o.s.runner
		forgotten := []int{0, 59, 70, 89}
		steps.do = func(n int64) {
			if n != step {
				return
			}
			other := plainStore(t, client, fewBuckets(o.s.opts.Prefix))
			for _, i := range forgotten {
				for _, err := range other.Forget(t.Context(), ids[i:i+1], 0) {
					noErr(t, err)
				}
			}
		}
		o.s.client, o.s.runner = hooked, script.NewRunner(hooked)
		noErr(t, o.fold(t.Context()))
		o.s.client, o.s.runner = whole, runner
		if steps.n.Load() < step {
			assert.GreaterOrEqual(t, step, int64(5), "the test does not step in between")
			letGo(t, o)
			return
		}
		var left []driver.ID
		for i, id := range ids {
			if i != 0 && i != 59 && i != 70 && i != 89 {
				left = append(left, id)
			}
		}
		o.counts(t, left)
		g := o.state(t).Gens[o.genNow()]
		assert.EqualValues(t, 2, g.Folded, "step %d: folded", step)
		assert.EqualValues(t, 86, g.Fresh+g.Kept, "step %d: folded", step)
		letGo(t, o)
		noErr(t, client.FlushAll(t.Context()).Err()) // as above
	}
}

// TestFoldStale: an owner of an earlier epoch folds nothing, and learns that it is stale.
func TestFoldStale(t *testing.T) {
	_, client := redistest.Mini(t)
	o, ids := filled(t, client, "stale")
	client.HIncrBy(t.Context(), o.names.head, "epoch", 1)
	assert.ErrorIs(t, o.fold(t.Context()), ErrLost)
	assert.ErrorIs(t, o.lostFor(), ErrLost)
	g := o.state(t).Gens[o.genNow()]
	assert.Zero(t, g.Folded)
	assert.Zero(t, g.Kept)
	o.counts(t, ids)
}

// TestFoldPhantom: a set that was named, but never begun, is not folded. Otherwise the server would
// wait for its fold forever when it is begun later.
func TestFoldPhantom(t *testing.T) {
	_, client := redistest.Mini(t)
	o, ids := filled(t, client, "phantom")
	o.mu.Lock()
	o.sets[o.gen].Newest += 2
	o.mu.Unlock()
	noErr(t, o.fold(t.Context()))
	more := idsOf(t, "more", 10)
	o.mark(t, more)
	o.nextSet()
	o.mark(t, idsOf(t, "last", 10))
	noErr(t, o.fold(t.Context()))
	g := o.state(t).Gens[o.genNow()]
	assert.EqualValues(t, 6, g.Newest)
	assert.EqualValues(t, 5, g.Folded)
	assert.EqualValues(t, 100, g.Kept)
	o.counts(t, append(ids, more...))
}
