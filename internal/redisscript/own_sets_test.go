package redisscript_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

// TestOwnAsk looks for ids that are everywhere and nowhere.
func TestOwnAsk(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.begin(1, 20)
		p.lapse()
		p.acquire()
		p.begin(1, 20, 22)
		p.lapse()
		p.acquire()
		p.begin(1, 22, 24)
		p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{2, 4}, []int64{4, 6})))
		p.mark(2, 8)
		p.must(p.client.SAdd(t.Context(), p.bucket(1), 10, 13).Err())
		p.must(p.client.SAdd(t.Context(), p.bucket(2), 12, 2).Err())
		ask := redisscript.OwnAsk{
			Epoch: p.self.Epoch, Gen: p.g, Newest: 2, IDs: []int64{2, 4, 6, 8, 10, 12, 14, 20, 22, 24},
			Fresh: []string{p.fresh(1), p.fresh(2), p.fresh(3)},
			// Of bucket 2 nobody asks for 2, and of bucket 3, which is not there, for all.
			Buckets: []redisscript.OwnBucket{{Key: p.bucket(1), Of: []int{4, 5}}, {Key: p.bucket(2), Of: []int{5}}, {Key: p.bucket(3), Of: []int{0, 1, 2, 3, 4, 5}}},
		}
		foreign := ask
		foreign.Foreign = true
		const done, touched, begun, other = 1, 2, 4, 8
		for name, c := range map[string]struct {
			ask  redisscript.OwnAsk
			want []redisscript.Found
		}{
			"owner":   {ask, []redisscript.Found{done, done, touched, done, done, done, 0, 0, 0, 0}},
			"foreign": {foreign, []redisscript.Found{done, done, touched, done, done, done, 0, 2 * other, begun | other, begun}},
		} {
			p.unchanged(func() {
				r := p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, &c.ask))
				if fmt.Sprint(r.Found) != fmt.Sprint(c.want) || r.Live != c.ask.Foreign {
					t.Errorf("%s: live %t, found %v, want %v", name, r.Live, r.Found, c.want)
				}
			}, p.fresh(1), p.fresh(2), p.bucket(1), p.bucket(2))
		}
		if f := redisscript.Found(begun | 2*other); !f.Begun() || f.Runs() != 2 || f.Done() || f.Touched() {
			t.Errorf("%d is read as %t %t %t %d", f, f.Done(), f.Touched(), f.Begun(), f.Runs())
		}

		p.lapse()
		if r := p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, &foreign)); r.Live {
			t.Error("nobody lives, and somebody is found")
		}
		p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, &redisscript.OwnAsk{Epoch: p.self.Epoch}))
	})
}

// TestOwnAskRefuses also prevents an answer from a list of sets that is no longer all.
func TestOwnAskRefuses(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare        func(p *part)
			owner, foreign string
		}{
			"as it was":         {func(*part) {}, redisscript.OwnFound, redisscript.OwnFound},
			"another set":       {func(p *part) { p.mark(2, 4) }, redisscript.OwnFound, redisscript.OwnStale},
			"another epoch":     {(*part).rob, redisscript.OwnStale, redisscript.OwnStale},
			"a generation more": {func(p *part) { p.poke("g", p.g+1) }, redisscript.OwnFound, redisscript.OwnStale},
			"lost":              {func(p *part) { p.remap(redisscript.OwnRemap{Lost: true}) }, redisscript.OwnAmnesia, redisscript.OwnAmnesia},
			"no head":           {func(p *part) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, redisscript.OwnAmnesia, redisscript.OwnAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.mark(1, 2)
				ask := redisscript.OwnAsk{Epoch: p.self.Epoch, IDs: []int64{2}, Fresh: []string{p.fresh(1)}}
				c.prepare(p)
				p.want(c.owner, redisscript.NewOwnAsk(p.keys, &ask))
				ask.Foreign, ask.Gen, ask.Newest = true, p.g, 1
				if r := p.want(c.foreign, redisscript.NewOwnAsk(p.keys, &ask)); r.Answer == redisscript.OwnStale {
					h := p.head()
					if r.Gen != h.Gen || r.Newest != h.Gens[h.Gen].Newest || r.Epoch != h.Epoch {
						t.Errorf("answered %+v, head %+v", r, h)
					}
				}
			})
		}
	})
}

// TestOwnAskIsAligned prevents an id that is found across two others.
func TestOwnAskIsAligned(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.begin(1, 0x0102030405060708, 0x0902030405060708, 0x0806040200020406)
		ask := redisscript.OwnAsk{
			Epoch: p.self.Epoch, Foreign: true, Gen: p.g,
			IDs: []int64{0x0506070809020304, 0x0203040506070808, 0x0806040200020406, 0},
		}
		if got := p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, &ask)).Found; fmt.Sprint(got) != "[0 0 4 0]" {
			t.Errorf("found %v", got)
		}
	})
}

func TestOwnFold(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{2, 4}, []int64{6})))
		p.mark(2, 2, 8)
		half := &redisscript.OwnFold{Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 3, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2, 7}}}}
		whole := *half
		whole.Last, whole.Buckets = true, append(half.Buckets, redisscript.OwnFill{Key: p.bucket(2), Members: []int64{4}})
		for _, c := range []struct {
			fold *redisscript.OwnFold
			want redisscript.OwnGen
		}{
			{half, redisscript.OwnGen{Newest: 2, Fresh: 5, Kept: 2}},
			{&whole, redisscript.OwnGen{Newest: 2, Folded: 1, Fresh: 2, Kept: 3}},
		} {
			for range 2 { // sent again
				p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, c.fold))
				if g := p.head().Gens[p.g]; g != c.want {
					t.Errorf("last %t: head has %+v, want %+v", c.fold.Last, g, c.want)
				}
			}
		}
		p.wantMembers(p.fresh(1))
		p.wantMembers(p.fresh(2), 2, 8)
		p.wantMembers(p.bucket(1), 2, 7)
		p.wantMembers(p.bucket(2), 4)
		// A fold that comes late does nothing, and a turn does not write to what is folded.
		p.unchanged(func() { p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, half)) }, p.bucket(1))
		p.want(redisscript.OwnEdge, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{10}, nil)))
		second := &redisscript.OwnFold{Fresh: p.fresh(2), Gen: p.g, N: 2, Count: 2, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2, 8}}}}
		p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, second))
		if g, want := p.head().Gens[p.g], (redisscript.OwnGen{Newest: 2, Folded: 2, Kept: 4}); g != want {
			t.Errorf("head has %+v, want %+v", g, want)
		}
	})
}

// TestOwnFoldRefuses prevents a mark that is lost, or comes back, because the set has
// changed since it was read.
func TestOwnFoldRefuses(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, f *redisscript.OwnFold)
			want    string
		}{
			"another epoch": {func(p *part, _ *redisscript.OwnFold) { p.rob() }, redisscript.OwnStale},
			"forgotten": {func(p *part, _ *redisscript.OwnFold) {
				p.want(redisscript.OwnForgotten, redisscript.NewOwnForget(p.keys, &redisscript.OwnForget{ID: 2, Gen: p.g, Newest: 1, Fresh: []redisscript.OwnSet{{Key: p.fresh(1), Gen: p.g}}}))
			}, redisscript.OwnForgot},
			"forgotten elsewhere": {func(p *part, _ *redisscript.OwnFold) { p.forgetNothing() }, redisscript.OwnForgot},
			"a mark more":         {func(p *part, _ *redisscript.OwnFold) { p.mark(1, 6) }, redisscript.OwnGrown},
			"marks gone":          {func(p *part, _ *redisscript.OwnFold) { p.must(p.client.Del(t.Context(), p.fresh(1)).Err()) }, redisscript.OwnGrown},
			"over":                {func(_ *part, f *redisscript.OwnFold) { f.Gen -= 10 }, redisscript.OwnFolded},
			"no head":             {func(p *part, _ *redisscript.OwnFold) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, redisscript.OwnAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.mark(1, 2, 4)
				f := &redisscript.OwnFold{Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 2, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2, 4}}}}
				c.prepare(p, f)
				p.unchanged(func() { p.want(c.want, redisscript.NewOwnFold(p.keys, p.self, f)) }, p.fresh(1), p.bucket(1))
			})
		}
		p := held(t, b, "order")
		p.mark(1, 2)
		p.mark(2, 4)
		f := &redisscript.OwnFold{Fresh: p.fresh(2), Gen: p.g, N: 2, Count: 1, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{4}}}}
		p.unchanged(func() {
			if r := p.runner.RunOwn(t.Context(), []redisscript.Call{redisscript.NewOwnFold(p.keys, p.self, f)})[0]; r.Err == nil {
				t.Errorf("a set that was not the oldest: %+v", r)
			}
		}, p.fresh(2), p.bucket(1))
	})
}

func TestOwnRelease(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part)
			want    string
		}{
			"ours":            {func(*part) {}, redisscript.OwnReleased},
			"lapsed":          {(*part).lapse, redisscript.OwnReleased},
			"another epoch":   {(*part).rob, redisscript.OwnStale},
			"another's token": {func(p *part) { p.self.Token = owner{2} }, redisscript.OwnStale},
			"no head":         {func(p *part) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, redisscript.OwnAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				ended, left := p.begin(1, 2), p.begin(2, 4)
				c.prepare(p)
				call := redisscript.NewOwnRelease(p.keys, p.self, []string{ended})
				if c.want != redisscript.OwnReleased {
					p.unchanged(func() { p.want(c.want, call) })
					return
				}
				before := p.head()
				r := p.want(c.want, call)
				if h := p.head(); h.Seq != before.Seq+1 || r.Seq != h.Seq || h.Epoch != p.self.Epoch {
					t.Errorf("was %+v, is %+v", before, h)
				}
				if got, want := p.begun(), (map[string][]int64{left: {4}}); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("run has %v, want %v", got, want)
				}
				if p.lease() > 0 {
					t.Error("it is still held")
				}
				p.want(redisscript.OwnReleased, call)
				p.want(redisscript.OwnLapsed, redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{}))
				old := p.self.Epoch
				if r := p.acquire(); r.Before != old || r.Epoch <= old {
					t.Errorf("acquired %+v after epoch %d", r, old)
				}
			})
		}
	})
}

func TestOwnRemap(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := newPart(t, b, "p")
		p.want(redisscript.OwnAmnesia, redisscript.NewOwnRemap(p.keys, redisscript.OwnRemap{MapVersion: 3, Span: time.Hour, Lost: true}))
		if h := p.head(); h != nil {
			t.Fatalf("made %+v", h)
		}
		r := p.remap(redisscript.OwnRemap{MapVersion: 3, Bear: true})
		if h := p.head(); h.MapVersion != 3 || h.SharedUntil != 0 || h.Epoch != uint64(r.Now/time.Millisecond)*1024 || r.Epoch != h.Epoch || h.Lost {
			t.Errorf("bore %+v, answered %+v", h, r)
		}
		born := p.head().Epoch
		r = p.remap(redisscript.OwnRemap{MapVersion: 4, Span: time.Hour, Bear: true})
		if h := p.head(); h.MapVersion != 4 || h.SharedUntil != r.Now+time.Hour || r.SharedUntil != h.SharedUntil || h.Epoch != born {
			t.Errorf("moved to %+v, answered %+v", h, r)
		}
		until := r.SharedUntil
		r = p.remap(redisscript.OwnRemap{MapVersion: 2, Span: time.Minute})
		if h := p.head(); h.MapVersion != 4 || h.SharedUntil != until || r.MapVersion != 4 || r.SharedUntil != until {
			t.Errorf("moved back to %+v, answered %+v", h, r)
		}
		if r := p.remap(redisscript.OwnRemap{Span: 2 * time.Hour}); r.SharedUntil != r.Now+2*time.Hour || r.MapVersion != 4 {
			t.Errorf("answered %+v", r)
		}
	})
}

// TestOwnLost has a partition that lost members stay so until an operator bears it anew,
// and then be acquired without being lost again.
func TestOwnLost(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.mark(1, 2, 4, 6)
		p.must(p.client.SRem(t.Context(), p.fresh(1), 6).Err())
		p.remap(redisscript.OwnRemap{MapVersion: 1, Lost: true})
		p.remap(redisscript.OwnRemap{MapVersion: 1, Span: time.Hour})
		if h := p.head(); !h.Lost || h.Gens[p.g].Fresh != 3 {
			t.Errorf("head %+v", h)
		}
		p.unchanged(func() {
			p.want(redisscript.OwnAmnesia, redisscript.NewOwnRemap(p.keys, redisscript.OwnRemap{MapVersion: 1, Bear: true}))
		})
		p.mark2(redisscript.OwnShared, 1, 8) // what had begun is still marked
		r := p.remap(redisscript.OwnRemap{MapVersion: 1, Bear: true, Span: 2 * time.Hour})
		h := p.head()
		if h.Lost || h.SharedUntil != r.Now+2*time.Hour || h.Gens[p.g] != (redisscript.OwnGen{Newest: 1}) {
			t.Errorf("head %+v", h)
		}
		p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 3, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2, 4, 8}}},
		}))
		if g := p.head().Gens[p.g]; g.Fresh+g.Kept > 3 {
			t.Errorf("head counts %+v of 3", g)
		}
		p.lapse()
		p.acquire()
	})
}

func (p *part) mark2(answer string, n int, ids ...int64) {
	p.t.Helper()
	p.want(answer, redisscript.NewOwnTurn(p.keys, p.self, p.turn(n, ids, nil)))
}

func TestOwnForget(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, f *redisscript.OwnForget)
			want    string
			found   bool
			raises  bool // the epoch
		}{
			"in a fresh set":         {func(p *part, f *redisscript.OwnForget) { f.ID = 2 }, redisscript.OwnForgotten, true, false},
			"in a bucket":            {func(p *part, f *redisscript.OwnForget) { f.ID = 12 }, redisscript.OwnForgotten, true, false},
			"in both":                {func(p *part, f *redisscript.OwnForget) { f.ID = 14 }, redisscript.OwnForgotten, true, false},
			"touched":                {func(p *part, f *redisscript.OwnForget) { f.ID = 6 }, redisscript.OwnForgotten, false, false},
			"nowhere":                {func(p *part, f *redisscript.OwnForget) { f.ID = 100 }, redisscript.OwnForgotten, false, false},
			"nobody there":           {func(p *part, f *redisscript.OwnForget) { f.ID = 2; p.lapse() }, redisscript.OwnForgotten, true, true},
			"nobody there, begun":    {func(p *part, f *redisscript.OwnForget) { f.ID = 20; p.lapse() }, redisscript.OwnForgotten, false, true},
			"begun":                  {func(p *part, f *redisscript.OwnForget) { f.ID = 20 }, redisscript.OwnInFlight, false, false},
			"begun, says the owner":  {func(p *part, f *redisscript.OwnForget) { f.ID, f.Token = 20, p.self.Token }, redisscript.OwnForgotten, false, false},
			"begun, says an old one": {func(p *part, f *redisscript.OwnForget) { f.ID, f.Token = 20, owner{7} }, redisscript.OwnInFlight, false, false},
			"begun and marked":       {func(p *part, f *redisscript.OwnForget) { f.ID = 2; p.begin(2, 2) }, redisscript.OwnForgotten, true, false},
			"begun in another epoch": {func(p *part, f *redisscript.OwnForget) { f.ID = 20; p.lapse(); p.acquire() }, redisscript.OwnForgotten, false, false},
			"a newer set":            {func(p *part, f *redisscript.OwnForget) { f.ID = 2; p.mark(3, 30) }, redisscript.OwnStale, false, false},
			"a newer generation":     {func(p *part, f *redisscript.OwnForget) { f.ID = 2; p.poke("g", p.g+1) }, redisscript.OwnStale, false, false},
			"no head":                {func(p *part, f *redisscript.OwnForget) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, redisscript.OwnAmnesia, false, false},
			"lost, and nobody minds": {func(p *part, f *redisscript.OwnForget) { f.ID = 2; p.remap(redisscript.OwnRemap{Lost: true}) }, redisscript.OwnForgotten, true, false},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{12, 14}, nil)))
				p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{
					Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 2, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{12, 14}}},
				}))
				p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(2, []int64{2, 4, 14}, []int64{2, 6})))
				p.begin(1, 18, 20)
				f := &redisscript.OwnForget{
					Gen: p.g, Newest: 2, Fresh: []redisscript.OwnSet{{Key: p.fresh(2), Gen: p.g}, {Key: p.fresh(3), Gen: p.g}},
					Buckets: []redisscript.OwnSet{{Key: p.set("b", p.g-1, 1), Gen: p.g - 1}, {Key: p.bucket(1), Gen: p.g}},
				}
				c.prepare(p, f)
				call := redisscript.NewOwnForget(p.keys, f)
				if c.want != redisscript.OwnForgotten {
					p.unchanged(func() { p.want(c.want, call) }, p.fresh(2), p.bucket(1))
					return
				}
				before, asked := p.head(), p.self.Epoch
				for again := range uint64(2) {
					if again == 1 && name == "begun and marked" { // begun is what is left
						p.want(redisscript.OwnInFlight, call)
						break
					}
					r := p.want(c.want, call)
					h := p.head()
					if r.Found[0].Done() != (c.found && again == 0) || r.Forgets != before.Forgets+1+again || h.Forgets != r.Forgets {
						t.Errorf("answered %+v, head %+v", r, h)
					}
					if h.Epoch != r.Epoch || (h.Epoch > asked) != c.raises {
						t.Errorf("the epoch was %d, is %d, answered %d", asked, h.Epoch, r.Epoch)
					}
				}
				for _, key := range []string{p.fresh(2), p.bucket(1)} {
					if p.client.SIsMember(t.Context(), key, f.ID).Val() {
						t.Errorf("%s still has it", key)
					}
				}
				h := p.head()
				if g := h.Gens[p.g]; g.Fresh != int64(len(p.members(p.fresh(2)))) || g.Kept != int64(len(p.members(p.bucket(1)))) {
					t.Errorf("head counts %+v, there are %v and %v", g, p.members(p.fresh(2)), p.members(p.bucket(1)))
				}
				if !p.client.SIsMember(t.Context(), p.fresh(2), 3).Val() || !p.client.SIsMember(t.Context(), p.fresh(2), 7).Val() {
					t.Errorf("touches were forgotten: %v", p.members(p.fresh(2)))
				}
			})
		}
	})
}

// TestOwnSetsEnd prevents a set that stays for ever: one that a forget has emptied loses
// its end, and gets it again with its next member.
func TestOwnSetsEnd(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		end := func(g int64) time.Duration { return time.Duration(g+3)*ownSlice + ownKeep }
		ends := func(key string, g int64) {
			t.Helper()
			at := p.client.PExpireTime(t.Context(), key).Val()
			if diff := at - end(g); diff > time.Millisecond || diff < -time.Millisecond { // miniredis rounds
				t.Errorf("%s ends at %v, want %v", key, at, end(g))
			}
		}
		forget := func(newest uint64, fresh, buckets []redisscript.OwnSet) {
			t.Helper()
			p.want(redisscript.OwnForgotten, redisscript.NewOwnForget(p.keys, &redisscript.OwnForget{ID: 2, Gen: p.g, Newest: newest, Fresh: fresh, Buckets: buckets}))
		}
		fold := func(n int) {
			t.Helper()
			p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{
				Fresh: p.fresh(n), Gen: p.g, N: uint64(n), Forgets: p.head().Forgets, Count: 1, Last: true,
				Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2}}},
			}))
		}
		for range 2 {
			p.mark(1, 2)
			ends(p.fresh(1), p.g)
			forget(1, []redisscript.OwnSet{{Key: p.fresh(1), Gen: p.g}}, nil)
		}
		p.mark(1, 2)
		for n := 1; n <= 2; n++ {
			fold(n)
			ends(p.bucket(1), p.g)
			forget(uint64(n), nil, []redisscript.OwnSet{{Key: p.bucket(1), Gen: p.g}})
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

// TestOwnGenerationsOver prevents a head that grows for ever, and one that drops counts of
// what is still there.
func TestOwnGenerationsOver(t *testing.T) {
	frozen, client := redistest.Freeze(t)
	p := held(t, redistest.Backend{Client: client, Prefix: "own"}, "p")
	first := p.g
	p.mark(1, 2)
	p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{
		Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 1, Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: []int64{2}}},
	}))
	p.mark(2, 4)
	for p.g < first+8 {
		// A turn of the generation before is told so, and the next one raises g.
		frozen.Advance(ownSlice)
		p.lapse()
		p.want(redisscript.OwnAcquired, redisscript.NewOwnAcquire(p.keys, p.self, redisscript.OwnClaim{Hold: ownHold}))
		p.self.Epoch = p.head().Epoch
		if r := p.want(redisscript.OwnEdge, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{2}, nil))); r.Gen != p.g+1 {
			t.Errorf("told %d at %d", r.Gen, p.g+1)
		}
		p.g++
		p.mark(1, p.g*2)
		_, counted := p.head().Gens[first]
		there := client.Exists(t.Context(), p.set("f", first, 2), p.set("b", first, 1)).Val() > 0
		if counted != there {
			t.Errorf("%d slices later: counted %t, there %t", p.g-first, counted, there)
		}
		if g, want := p.head().Gens[p.g], (redisscript.OwnGen{Newest: 1, Fresh: 1}); g != want {
			t.Errorf("head has %+v, want %+v", g, want)
		}
	}
	if client.Exists(t.Context(), p.set("f", first, 2)).Val() > 0 {
		t.Error("the first generation never ended")
	}
	// What comes late for it makes nothing anew.
	late := &redisscript.OwnFold{Fresh: p.set("f", first, 2), Gen: first, N: 2, Count: 0, Last: true}
	p.unchanged(func() { p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, late)) })
}

// TestOwnClockBack prevents a generation that is written to again after it was over, on a
// promoted server whose clock is late.
func TestOwnClockBack(t *testing.T) {
	frozen, client := redistest.Freeze(t)
	p := held(t, redistest.Backend{Client: client, Prefix: "own"}, "p")
	p.mark(1, 2)
	epoch, fence := p.self.Epoch, p.head().Fence
	frozen.Advance(-2 * ownSlice)
	p.lapse()
	p.acquire()
	r := p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{4}, nil)))
	if r.Gen != p.g || r.Epoch != epoch+1 || r.Fence != fence+1 {
		t.Errorf("answered %+v after epoch %d, fence %d, generation %d", r, epoch, fence, p.g)
	}
}

// TestOwnUnreadable prevents a partition of another version that is taken for empty.
func TestOwnUnreadable(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, prepare := range map[string]func(p *part){
			"version": func(p *part) { p.poke("version", 2) },
			"type": func(p *part) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
				p.must(p.client.Set(t.Context(), p.keys.Head, "x", time.Minute).Err())
			},
		} {
			p := held(t, b, name)
			calls := map[string]redisscript.Call{
				"acquire": redisscript.NewOwnAcquire(p.keys, p.self, redisscript.OwnClaim{}),
				"turn":    redisscript.NewOwnTurn(p.keys, p.self, p.turn(1, []int64{2}, nil)),
				"ask":     redisscript.NewOwnAsk(p.keys, &redisscript.OwnAsk{Epoch: p.self.Epoch}),
				"fold":    redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{Fresh: p.fresh(1), N: 1}),
				"release": redisscript.NewOwnRelease(p.keys, p.self, nil),
				"remap":   redisscript.NewOwnRemap(p.keys, redisscript.OwnRemap{Bear: true}),
				"forget":  redisscript.NewOwnForget(p.keys, &redisscript.OwnForget{}),
			}
			prepare(p)
			for call, c := range calls {
				r := p.runner.RunOwn(t.Context(), []redisscript.Call{c})[0]
				// miniredis tells no type of error from within a script.
				if r.Err == nil || !errors.Is(r.Err, redisscript.ErrUnreadable) && (name == "version" || b.Name != "miniredis") {
					t.Errorf("%s, %s: %+v", name, call, r)
				}
			}
			if b.Client.Exists(t.Context(), p.fresh(1)).Val() > 0 {
				t.Errorf("%s: something was written", name)
			}
		}
	})
}

// TestOwnFullServer has a server without memory refuse begins alone.
func TestOwnFullServer(t *testing.T) {
	ctx := t.Context()
	client := redistest.Client(t, &redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	p := held(t, redistest.Backend{Name: "redis", Client: client, Prefix: servertest.Prefix(t)}, "p")
	old := p.begin(1, 2)
	p.must(client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	p.must(client.ConfigSet(ctx, "maxmemory", "100kb").Err())
	turn := p.turn(1, []int64{2}, []int64{4})
	turn.Ended = []string{old}
	turn.Begin = []redisscript.OwnField{{Name: redisscript.OwnFieldName(p.self.Epoch, 2), Blob: redisscript.OwnBlob(6)}}
	p.shorten()
	alone := redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{Begin: turn.Begin})
	later := redisscript.NewOwnTurn(p.keys, redisscript.OwnSelf{Epoch: 1}, &redisscript.OwnTurn{Begin: turn.Begin})
	replies := p.runner.RunOwn(ctx, []redisscript.Call{alone, redisscript.NewOwnTurn(p.keys, p.self, turn), redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{}), later})
	for i, want := range []string{redisscript.OwnFull, redisscript.OwnFull, redisscript.OwnDone, redisscript.OwnStale} {
		if replies[i].Err != nil || replies[i].Answer != want {
			t.Errorf("turn %d: %+v, want %q", i, replies[i], want)
		}
	}
	p.wantMembers(turn.Fresh, 2, 5)
	if got := p.begun(); len(got) != 0 || !p.renewed() {
		t.Errorf("run has %v, lease %v", got, p.lease())
	}
	p.want(redisscript.OwnReleased, redisscript.NewOwnRelease(p.keys, p.self, nil))
	p.want(redisscript.OwnAcquired, redisscript.NewOwnAcquire(p.keys, p.self, redisscript.OwnClaim{Hold: ownHold}))
	p.must(client.ConfigSet(ctx, "maxmemory", "0").Err())
	p.self.Epoch = p.head().Epoch
	p.begin(3, 6)
}
