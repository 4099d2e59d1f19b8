package script_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

func TestFold(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.want(script.AnswerDone,
			script.NewBatch(p.keys, p.self, p.turn(1, []int64{2, 4}, []int64{6})))
		p.mark(2, 2, 8)
		half := &script.Fold{Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 3,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2, 7}}}}
		whole := *half
		whole.Last, whole.Buckets = true,
			append(half.Buckets, script.Fill{Key: p.bucket(2), Members: []int64{4}})
		for _, c := range []struct {
			fold *script.Fold
			want script.Gen
		}{
			{half, script.Gen{Newest: 2, Fresh: 5, Kept: 2}},
			{&whole, script.Gen{Newest: 2, Folded: 1, Fresh: 2, Kept: 3}},
		} {
			for range 2 { // sent again
				p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, c.fold))
				assert.Equal(t, c.want, p.head().Gens[p.g])
			}
		}
		p.wantMembers(p.fresh(1))
		p.wantMembers(p.fresh(2), 2, 8)
		p.wantMembers(p.bucket(1), 2, 7)
		p.wantMembers(p.bucket(2), 4)
		// A fold that comes late does nothing, and a batch write does not write to what is folded.
		p.unchanged(func() {
			p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, half))
		}, p.bucket(1))
		p.want(script.AnswerEdge,
			script.NewBatch(p.keys, p.self, p.turn(1, []int64{10}, nil)))
		second := &script.Fold{Fresh: p.fresh(2), Gen: p.g, N: 2, Count: 2, Last: true,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2, 8}}}}
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, second))
		g, want := p.head().Gens[p.g],
			(script.Gen{Newest: 2, Folded: 2, Kept: 5})
		assert.Equal(t, want, g)
		p.wantMembers(p.bucket(1), 2, 2, 7, 8) // 2 was in both sets, and is counted so
	})
}

// TestFoldRefuses prevents a mark that is lost, or comes back, because the set has
// changed since it was read.
func TestFoldRefuses(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, f *script.Fold)
			want    string
		}{
			"another epoch": {func(p *part, _ *script.Fold) {
				p.rob()
			}, script.AnswerStale},
			"forgotten": {func(p *part, _ *script.Fold) {
				p.want(script.AnswerForgotten, script.NewForget(p.keys,
					&script.Forget{ID: 2, Gen: p.g, Newest: 1,
						Fresh: []script.Set{{Key: p.fresh(1), Gen: p.g}}}))
			}, script.AnswerForgot},
			"forgotten elsewhere": {func(p *part, _ *script.Fold) {
				p.forgetNothing()
			}, script.AnswerForgot},
			"a mark more": {func(p *part, _ *script.Fold) {
				p.mark(1, 6)
			}, script.AnswerGrown},
			"marks gone": {func(p *part, _ *script.Fold) {
				p.must(p.client.Del(t.Context(), p.fresh(1)).Err())
			}, script.AnswerGrown},
			"over": {func(_ *part, f *script.Fold) {
				f.Gen -= 10
			}, script.AnswerFolded},
			"no head": {func(p *part, _ *script.Fold) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, script.AnswerAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.mark(1, 2, 4)
				f := &script.Fold{Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 2, Last: true,
					Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2, 4}}}}
				c.prepare(p, f)
				p.unchanged(func() {
					p.want(c.want, script.NewFold(p.keys, p.self, f))
				}, p.fresh(1), p.bucket(1))
			})
		}
		p := held(t, b, "order")
		p.mark(1, 2)
		p.mark(2, 4)
		f := &script.Fold{Fresh: p.fresh(2), Gen: p.g, N: 2, Count: 1, Last: true,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{4}}}}
		p.unchanged(func() {
			r := p.runner.Run(t.Context(),
				[]script.Call{script.NewFold(p.keys, p.self, f)})[0]
			assert.Error(t, r.Err, "a set that was not the oldest")
		}, p.fresh(2), p.bucket(1))
	})
}

func TestForget(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, f *script.Forget)
			want    string
			found   bool
			raises  bool // the epoch
		}{
			"in a fresh set": {func(p *part, f *script.Forget) {
				f.ID = 2
			}, script.AnswerForgotten, true, false},
			"in a bucket": {func(p *part, f *script.Forget) {
				f.ID = 12
			}, script.AnswerForgotten, true, false},
			"in both": {func(p *part, f *script.Forget) {
				f.ID = 14
			}, script.AnswerForgotten, true, false},
			"touched": {func(p *part, f *script.Forget) {
				f.ID = 6
			}, script.AnswerForgotten, false, false},
			"nowhere": {func(p *part, f *script.Forget) {
				f.ID = 100
			}, script.AnswerForgotten, false, false},
			"nobody there": {func(p *part, f *script.Forget) {
				f.ID = 2
				p.lapse()
			}, script.AnswerForgotten, true, true},
			"nobody there, begun": {func(p *part, f *script.Forget) {
				f.ID = 20
				p.lapse()
			}, script.AnswerForgotten, false, true},
			"begun": {func(p *part, f *script.Forget) {
				f.ID = 20
			}, script.AnswerInFlight, false, false},
			"begun, says the owner": {func(p *part, f *script.Forget) {
				f.ID, f.Token = 20, p.self.Token
			}, script.AnswerForgotten, false, false},
			"begun, says an old one": {func(p *part, f *script.Forget) {
				f.ID, f.Token = 20, [16]byte{7}
			}, script.AnswerInFlight, false, false},
			"begun and marked": {func(p *part, f *script.Forget) {
				f.ID = 2
				p.begin(2, 2)
			}, script.AnswerForgotten, true, false},
			"begun in another epoch": {func(p *part, f *script.Forget) {
				f.ID = 20
				p.lapse()
				p.acquire()
			}, script.AnswerForgotten, false, false},
			"a newer set": {func(p *part, f *script.Forget) {
				f.ID = 2
				p.mark(3, 30)
			}, script.AnswerStale, false, false},
			"a newer generation": {func(p *part, f *script.Forget) {
				f.ID = 2
				p.poke("g", p.g+1)
			}, script.AnswerStale, false, false},
			"no head": {func(p *part, f *script.Forget) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, script.AnswerAmnesia, false, false},
			"lost, and nobody minds": {func(p *part, f *script.Forget) {
				f.ID = 2
				p.remap(script.Remap{Lost: true})
			}, script.AnswerForgotten, true, false},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.want(script.AnswerDone,
					script.NewBatch(p.keys, p.self, p.turn(1, []int64{12, 14}, nil)))
				p.want(script.AnswerFolded,
					script.NewFold(p.keys, p.self, &script.Fold{
						Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 2, Last: true,
						Buckets: []script.Fill{{Key: p.bucket(1),
							Members: []int64{12, 14}}},
					}))
				p.want(script.AnswerDone,
					script.NewBatch(p.keys, p.self,
						p.turn(2, []int64{2, 4, 14}, []int64{2, 6})))
				p.begin(1, 18, 20)
				f := &script.Forget{
					Gen: p.g, Newest: 2, Fresh: []script.Set{{Key: p.fresh(2), Gen: p.g},
						{Key: p.fresh(3), Gen: p.g}},
					Buckets: []script.Set{{Key: p.set("b", p.g-1, 1), Gen: p.g - 1},
						{Key: p.bucket(1), Gen: p.g}},
				}
				c.prepare(p, f)
				call := script.NewForget(p.keys, f)
				if c.want != script.AnswerForgotten {
					p.unchanged(func() { p.want(c.want, call) }, p.fresh(2), p.bucket(1))
					return
				}
				p.wantForgotten(f, c.found, c.raises, name == "begun and marked")
			})
		}
	})
}

// TestForgetTakesBeginsOfTheDead: Forget keeps only the begins of a living owner. Other begins
// would make the key a suspect for each later owner. The ids next to it stay, with the time of
// their begin.
func TestForgetTakesBeginsOfTheDead(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		dead, alone := p.begin(1, 0x0200000000000000, 2, 4, 2), p.begin(2, 2)
		p.lapse()
		p.acquire()
		lives := p.begin(1, 2, 6)
		at := p.client.HGet(t.Context(), p.keys.Run, dead).Val()[:8]
		forget := &script.Forget{ID: 2, Gen: p.head().Gen, Token: p.self.Token}
		p.want(script.AnswerForgotten, script.NewForget(p.keys, forget))
		want := map[string][]int64{dead: {0x0200000000000000, 4}, lives: {2, 6}}
		got := p.begun()
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "the run: %s and %s were of the dead",
			dead, alone)
		assert.Equal(t, at, p.client.HGet(t.Context(), p.keys.Run, dead).Val()[:8],
			"the time of the begin")
		p.lapse()
		p.want(script.AnswerForgotten, script.NewForget(p.keys, forget))
		want[lives] = []int64{6}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(p.begun()), "the run when nobody lives")
	})
}

// wantForgotten forgets twice. The second time, a begin of the owner that is there is found open.
func (p *part) wantForgotten(f *script.Forget, found, raises, begun bool) {
	p.t.Helper()
	before, asked := p.head(), p.self.Epoch
	for again := range uint64(2) {
		if again == 1 && begun { // begun is what is left
			p.want(script.AnswerInFlight, script.NewForget(p.keys, f))
			break
		}
		r := p.want(script.AnswerForgotten, script.NewForget(p.keys, f))
		h := p.head()
		assert.Equal(p.t, found && again == 0, r.Found[0].Done())
		assert.Equal(p.t, before.Forgets+1+again, r.Forgets)
		assert.Equal(p.t, r.Forgets, h.Forgets)
		assert.Equal(p.t, r.Epoch, h.Epoch, "the epoch")
		assert.Equal(p.t, raises, h.Epoch > asked)
	}
	for _, key := range []string{p.fresh(2), p.bucket(1)} {
		assert.NotContains(p.t, p.members(key), f.ID, "%s still has it", key)
	}
	h := p.head()
	g := h.Gens[p.g]
	assert.Equal(p.t, int64(len(p.members(p.fresh(2)))), g.Fresh, "what head counts")
	assert.Equal(p.t, int64(len(p.members(p.bucket(1)))), g.Kept)
	got := p.members(p.fresh(2))
	assert.Contains(p.t, got, int64(3), "touches were forgotten")
	assert.Contains(p.t, got, int64(7))
}

// TestSetsEnd prevents a set that stays forever: one that a forget has emptied loses
// its end, and gets it again with its next member.
func TestSetsEnd(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		end := func(g int64) time.Duration { return time.Duration(g+3)*slice + keep }
		ends := func(key string, g int64) {
			t.Helper()
			at := p.client.PExpireTime(t.Context(), key).Val()
			// miniredis keeps what is left of it, and its clock runs on
			diff := at - end(g)
			assert.LessOrEqual(t, diff.Abs(), 100*time.Millisecond, "%s ends at %v, want %v", key,
				at, end(g))
		}
		forget := func(newest uint64, fresh, buckets []script.Set) {
			t.Helper()
			p.want(script.AnswerForgotten, script.NewForget(p.keys,
				&script.Forget{ID: 2, Gen: p.g, Newest: newest, Fresh: fresh,
					Buckets: buckets}))
		}
		fold := func(n int) {
			t.Helper()
			p.want(script.AnswerFolded,
				script.NewFold(p.keys, p.self, &script.Fold{
					Fresh: p.fresh(n), Gen: p.g, N: uint64(n), Forgets: p.head().Forgets, Count: 1,
					Last: true, Buckets: []script.Fill{{Key: p.bucket(1),
						Members: []int64{2}}},
				}))
		}
		for range 2 {
			p.mark(1, 2)
			ends(p.fresh(1), p.g)
			forget(1, []script.Set{{Key: p.fresh(1), Gen: p.g}}, nil)
		}
		p.mark(1, 2)
		for n := 1; n <= 2; n++ {
			fold(n)
			ends(p.bucket(1), p.g)
			forget(uint64(n), nil, []script.Set{{Key: p.bucket(1), Gen: p.g}})
			p.mark(n+1, 2)
		}
		// Where head is ahead of the clock, sets end by their own generation.
		p.g++
		p.poke("g", p.g)
		p.mark(1, 2)
		ends(p.fresh(1), p.g)
		fold(1)
		ends(p.bucket(1), p.g)
	})
}

// TestGenerationsOver prevents a head that grows forever, and one that drops counts of sets that
// still exist.
func TestGenerationsOver(t *testing.T) {
	frozen, client := redistest.Freeze(t)
	p := held(t, redistest.Backend{Client: client, Prefix: "own"}, "p")
	first := p.g
	p.mark(1, 2)
	p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, &script.Fold{
		Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 1, Last: true,
		Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2}}},
	}))
	p.mark(2, 4)
	for p.g < first+8 {
		// A batch write of the generation before is told so, and the next one raises g.
		frozen.Advance(slice)
		p.lapse()
		p.want(script.AnswerAcquired,
			script.NewAcquire(p.keys, p.self, script.Claim{Hold: hold}))
		p.self.Epoch = p.head().Epoch
		r := p.want(script.AnswerEdge,
			script.NewBatch(p.keys, p.self, p.turn(1, []int64{2}, nil)))
		assert.Equal(t, p.g+1, r.Gen)
		p.g++
		p.mark(1, p.g*2)
		_, counted := p.head().Gens[first]
		there := client.Exists(t.Context(), p.set("f", first, 2), p.set("b", first, 1)).Val() > 0
		assert.Equal(t, there, counted, "%d slices later: counted next to there", p.g-first)
		g, want := p.head().Gens[p.g], (script.Gen{Newest: 1, Fresh: 1})
		assert.Equal(t, want, g)
	}
	assert.Zero(t, client.Exists(t.Context(), p.set("f", first, 2)).Val(),
		"the first generation never ended")
	// A call that comes late for it makes nothing anew.
	late := &script.Fold{Fresh: p.set("f", first, 2), Gen: first, N: 2, Count: 0,
		Last: true}
	p.unchanged(func() {
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, late))
	})
}

// TestForgetIsAligned prevents a Forget from removing the halves of two other ids.
func TestForgetIsAligned(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.mark(1, 2)
		p.must(p.client.Set(t.Context(), p.bucket(1),
			rawMembers(0x0102030405060708, 0x0902030405060708, 0x0506070809020304,
				0x0506070809020304), time.Hour).Err())
		for _, id := range []int64{0x0203040506070808, 0x0506070809020304} {
			p.want(script.AnswerForgotten, script.NewForget(p.keys,
				&script.Forget{ID: id, Gen: p.g, Newest: 1,
					Buckets: []script.Set{{Key: p.bucket(1), Gen: p.g}}}))
		}
		p.wantMembers(p.bucket(1), 0x0102030405060708, 0x0902030405060708)
		assert.Positive(t, p.client.PTTL(t.Context(), p.bucket(1)).Val(), "the bucket ends")
		assert.EqualValues(t, -2, p.head().Gens[p.g].Kept, "what head counts")
	})
}
