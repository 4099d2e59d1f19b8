package script_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

func TestAcquire(t *testing.T) {
	claim := script.Claim{Hold: hold, Generation: 5, TakeOver: true}
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part)
			claim   script.Claim
			want    string
		}{
			"no head": {func(p *part) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, claim, script.AnswerAmnesia},
			"lost": {func(p *part) {
				p.remap(script.Remap{Lost: true})
			}, claim, script.AnswerAmnesia},
			"lost, nobody there": {func(p *part) {
				p.lapse()
				p.remap(script.Remap{Lost: true})
			}, claim, script.AnswerAmnesia},
			"a later map": {func(p *part) {
				p.remap(script.Remap{MapVersion: 2})
			}, claim, script.AnswerRemapped},
			"a later map, ours": {func(p *part) {
				p.self.Token = [16]byte{1}
				p.remap(script.Remap{MapVersion: 2})
			}, claim, script.AnswerRemapped},
			"an older map": {func(p *part) {
				p.self.MapVersion = 2
			}, claim, script.AnswerRemapped},
			"ours": {func(p *part) {
				p.self.Token = [16]byte{1}
			}, claim, script.AnswerMine},
			"free": {(*part).lapse, claim, script.AnswerAcquired},
			"free, lower generation": {func(p *part) {
				p.poke("generation", 9)
				p.lapse()
			}, claim, script.AnswerAcquired},
			"live": {func(p *part) {
				p.poke("generation", 4)
			}, script.Claim{Hold: hold, Generation: 5}, script.AnswerHeld},
			"live, lower generation": {func(p *part) {
				p.poke("generation", 4)
			}, claim, script.AnswerAcquired},
			"live, same generation": {func(p *part) {
				p.poke("generation", 5)
			}, claim, script.AnswerHeld},
			"live, higher generation": {func(p *part) {
				p.poke("generation", 6)
			}, claim, script.AnswerHeld},
			"live, no generation": {func(*part) {}, claim, script.AnswerHeld},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				first := p.self.Epoch
				p.self.Token = [16]byte{2}
				c.prepare(p)
				p.shorten()
				before := p.head()
				call := script.NewAcquire(p.keys, p.self, c.claim)
				var r script.Reply
				ask := func() { r = p.want(c.want, call) }
				switch c.want {
				case script.AnswerAcquired:
					ask()
					h := p.head()
					if r.Before != first || r.Epoch <= first ||
						r.Epoch < uint64(r.Now/time.Millisecond)*1024 || h.Epoch != r.Epoch {
						t.Errorf("epoch %d, head's %d; before %d, was %d", r.Epoch, h.Epoch,
							r.Before, first)
					}
					if h.Generation != c.claim.Generation || r.Seq != before.Seq+1 ||
						h.Seq != r.Seq || !p.renewed() {
						t.Errorf("%+v, head %+v, lease %v", r, h, p.lease())
					}
					if again := p.want(script.AnswerMine, call); again.Epoch != r.Epoch ||
						again.Before != 0 {
						t.Errorf("sent again: %+v", again)
					}
				case script.AnswerMine:
					ask()
					if h := p.head(); r.Epoch != first || h.Epoch != first || h.Generation != 5 ||
						!p.renewed() || r.Seq != before.Seq+1 || h.Seq != r.Seq {
						t.Errorf("%+v, head %+v, lease %v", r, h, p.lease())
					}
				default:
					p.unchanged(ask)
					if p.renewed() {
						t.Error("the lease was renewed")
					}
					if c.want == script.AnswerHeld && (r.Left <= 0 || r.Left > leaseTime/2) {
						t.Errorf("left %v", r.Left)
					}
				}
			})
		}
	})
}

func (p *part) remap(m script.Remap) script.Reply {
	p.t.Helper()
	return p.want(script.AnswerMapped, script.NewRemap(p.keys, m))
}

// TestAcquireDropsOldBegins prevents a run that grows for ever, and one that loses what
// is not old, or belongs to an epoch that goes on.
func TestAcquireDropsOldBegins(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		now := p.want(script.AnswerDone,
			script.NewBatch(p.keys, p.self, &script.Batch{})).Now
		put := func(n uint64, age time.Duration) string {
			name := p.begin(n, int64(n)*2)
			p.must(p.client.HSet(t.Context(), p.keys.Run,
				name, script.Blob(int64((now-age)/time.Millisecond)&^1, int64(n)*2)).Err())
			return name
		}
		put(1, hold+time.Minute)
		young := put(2, hold-time.Minute)
		claim := script.NewAcquire(p.keys, p.self, script.Claim{Hold: hold})
		p.want(script.AnswerMine, claim)
		if got := p.begun(); len(got) != 2 {
			t.Errorf("mine has dropped begins: %v", got)
		}
		p.lapse()
		p.want(script.AnswerAcquired, claim)
		if got, want := p.begun(),
			map[string][]int64{young: {4}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("run has %v, want %v", got, want)
		}
	})
}

// TestAcquireGoesOn: who says that the epoch before is his is the same owner still. What he
// began in it is alive, and is not dropped however old it is; when he is gone, or another came
// between, it is not.
func TestAcquireGoesOn(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		since := p.self.Epoch
		p.begin(1, 2)
		old := p.begin(2, 4)
		// long ago
		p.must(p.client.HSet(t.Context(), p.keys.Run, old, script.Blob(2, 4)).Err())
		goOn := func() {
			p.lapse()
			r := p.want(script.AnswerAcquired,
				script.NewAcquire(p.keys, p.self,
					script.Claim{Hold: hold, Mine: p.self.Epoch}))
			p.self.Epoch, p.self.Seq = r.Epoch, r.Seq
		}
		find := func(want ...script.IDState) {
			t.Helper()
			ask := script.Ask{Epoch: p.self.Epoch, Foreign: true, Gen: p.head().Gen,
				IDs: []int64{2, 4, 6}}
			if r := p.want(script.AnswerFound,
				script.NewAsk(p.keys, &ask)); !slices.Equal(r.Found, want) {
				t.Errorf("found %v, want %v", r.Found, want)
			}
		}
		forget := func(want string) {
			t.Helper()
			p.want(want, script.NewForget(p.keys,
				&script.Forget{ID: 2, Gen: p.head().Gen}))
		}
		for range 2 {
			goOn()
		}
		if h := p.head(); h.Since != since || h.Epoch != p.self.Epoch {
			t.Errorf("since %d, epoch %d; want %d and %d", h.Since, h.Epoch, since, p.self.Epoch)
		}
		p.begin(3, 2, 6)
		find(4|8, 4, 4)
		forget(script.AnswerInFlight)

		p.self.Epoch--
		goOn() // another came between
		if h := p.head(); h.Since != h.Epoch {
			t.Errorf("since %d, epoch %d", h.Since, h.Epoch)
		}
		find(2*8, 0, 8)
		forget(script.AnswerForgotten)
	})
}

func TestRelease(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part)
			want    string
		}{
			"ours":            {func(*part) {}, script.AnswerReleased},
			"lapsed":          {(*part).lapse, script.AnswerReleased},
			"another epoch":   {(*part).rob, script.AnswerStale},
			"another's token": {func(p *part) { p.self.Token = [16]byte{2} }, script.AnswerStale},
			"no head": {func(p *part) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, script.AnswerAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				ended, left := p.begin(1, 2), p.begin(2, 4)
				c.prepare(p)
				call := script.NewRelease(p.keys, p.self, []string{ended})
				if c.want != script.AnswerReleased {
					p.unchanged(func() { p.want(c.want, call) })
					return
				}
				before := p.head()
				r := p.want(c.want, call)
				if h := p.head(); h.Seq != before.Seq+1 || r.Seq != h.Seq ||
					h.Epoch != p.self.Epoch {
					t.Errorf("was %+v, is %+v", before, h)
				}
				if got, want := p.begun(),
					(map[string][]int64{left: {4}}); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("run has %v, want %v", got, want)
				}
				if p.lease() > 0 {
					t.Error("it is still held")
				}
				p.want(script.AnswerReleased, call)
				p.want(script.AnswerLapsed,
					script.NewBatch(p.keys, p.self, &script.Batch{}))
				old := p.self.Epoch
				if r := p.acquire(); r.Before != old || r.Epoch <= old {
					t.Errorf("acquired %+v after epoch %d", r, old)
				}
			})
		}
	})
}

func TestRemap(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := newPart(t, b, "p")
		p.want(script.AnswerAmnesia,
			script.NewRemap(p.keys,
				script.Remap{MapVersion: 3, Span: time.Hour, Lost: true}))
		if h := p.head(); h != nil {
			t.Fatalf("made %+v", h)
		}
		r := p.remap(script.Remap{MapVersion: 3, Bear: true})
		if h := p.head(); h.MapVersion != 3 || h.SharedUntil != 0 ||
			h.Epoch != uint64(r.Now/time.Millisecond)*1024 || r.Epoch != h.Epoch || h.Lost {
			t.Errorf("bore %+v, answered %+v", h, r)
		}
		born := p.head().Epoch
		r = p.remap(script.Remap{MapVersion: 4, Span: time.Hour, Bear: true})
		if h := p.head(); h.MapVersion != 4 || h.SharedUntil != r.Now+time.Hour ||
			r.SharedUntil != h.SharedUntil || h.Epoch != born {
			t.Errorf("moved to %+v, answered %+v", h, r)
		}
		until := r.SharedUntil
		r = p.remap(script.Remap{MapVersion: 2, Span: time.Minute})
		if h := p.head(); h.MapVersion != 4 || h.SharedUntil != until || r.MapVersion != 4 ||
			r.SharedUntil != until {
			t.Errorf("moved back to %+v, answered %+v", h, r)
		}
		if r := p.remap(script.Remap{Span: 2 * time.Hour}); r.SharedUntil != r.Now+
			2*time.Hour || r.MapVersion != 4 {
			t.Errorf("answered %+v", r)
		}
	})
}

// TestLost has a partition that lost members stay so until an operator bears it anew,
// and then be acquired without being lost again.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.mark(1, 2, 4, 6)
		p.must(p.client.SRem(t.Context(), p.fresh(1), rawMembers(6)).Err())
		p.remap(script.Remap{MapVersion: 1, Lost: true})
		p.remap(script.Remap{MapVersion: 1, Span: time.Hour})
		if h := p.head(); !h.Lost || h.Gens[p.g].Fresh != 3 {
			t.Errorf("head %+v", h)
		}
		p.unchanged(func() {
			p.want(script.AnswerAmnesia,
				script.NewRemap(p.keys, script.Remap{MapVersion: 1, Bear: true}))
		})
		p.markAs(script.AnswerShared, 1, 8) // what had begun is still marked
		r := p.remap(script.Remap{MapVersion: 1, Bear: true, Span: 2 * time.Hour})
		h := p.head()
		if h.Lost || h.SharedUntil != r.Now+2*time.Hour ||
			h.Gens[p.g] != (script.Gen{Newest: 1}) {
			t.Errorf("head %+v", h)
		}
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, &script.Fold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 3, Last: true,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2, 4, 8}}},
		}))
		if g := p.head().Gens[p.g]; g.Fresh+g.Kept > 3 {
			t.Errorf("head counts %+v of 3", g)
		}
		p.lapse()
		p.acquire()
	})
}

func (p *part) markAs(answer string, n int, ids ...int64) {
	p.t.Helper()
	p.want(answer, script.NewBatch(p.keys, p.self, p.turn(n, ids, nil)))
}

// TestClockBack prevents a generation that is written to again after it was over, on a
// promoted server whose clock is late.
func TestClockBack(t *testing.T) {
	frozen, client := redistest.Freeze(t)
	p := held(t, redistest.Backend{Client: client, Prefix: "own"}, "p")
	p.mark(1, 2)
	epoch, fence := p.self.Epoch, p.head().Fence
	frozen.Advance(-2 * slice)
	p.lapse()
	p.acquire()
	r := p.want(script.AnswerDone,
		script.NewBatch(p.keys, p.self, p.turn(1, []int64{4}, nil)))
	if r.Gen != p.g || r.Epoch != epoch+1 || r.Fence != fence+1 {
		t.Errorf("answered %+v after epoch %d, fence %d, generation %d", r, epoch, fence, p.g)
	}
}

// TestUnreadable prevents a partition of another version that is taken for empty.
func TestUnreadable(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, prepare := range map[string]func(p *part){
			"version": func(p *part) { p.poke("version", 2) },
			"type": func(p *part) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
				p.must(p.client.Set(t.Context(), p.keys.Head, "x", time.Minute).Err())
			},
		} {
			p := held(t, b, name)
			calls := map[string]script.Call{
				"acquire": script.NewAcquire(p.keys, p.self, script.Claim{}),
				"turn":    script.NewBatch(p.keys, p.self, p.turn(1, []int64{2}, nil)),
				"ask":     script.NewAsk(p.keys, &script.Ask{Epoch: p.self.Epoch}),
				"fold": script.NewFold(p.keys, p.self,
					&script.Fold{Fresh: p.fresh(1), N: 1}),
				"release": script.NewRelease(p.keys, p.self, nil),
				"remap":   script.NewRemap(p.keys, script.Remap{Bear: true}),
				"forget":  script.NewForget(p.keys, &script.Forget{}),
			}
			prepare(p)
			for call, c := range calls {
				r := p.runner.Run(t.Context(), []script.Call{c})[0]
				// miniredis tells no type of error from within a script.
				if r.Err == nil || !errors.Is(r.Err, script.ErrUnreadable) &&
					(name == "version" || b.Name != "miniredis") {
					t.Errorf("%s, %s: %+v", name, call, r)
				}
			}
			if b.Client.Exists(t.Context(), p.fresh(1)).Val() > 0 {
				t.Errorf("%s: something was written", name)
			}
		}
	})
}
