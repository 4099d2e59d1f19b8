package script_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
					assert.Equal(t, r.Before, first)
					assert.Greater(t, r.Epoch, first)
					assert.GreaterOrEqual(t, r.Epoch, uint64(r.Now/time.Millisecond)*1024)
					assert.Equal(t, r.Epoch, h.Epoch)
					assert.Equal(t, c.claim.Generation, h.Generation)
					assert.Equal(t, before.Seq+1, r.Seq)
					assert.Equal(t, r.Seq, h.Seq)
					assert.True(t, p.renewed())
					again := p.want(script.AnswerMine, call)
					assert.Equal(t, r.Epoch, again.Epoch, "sent again")
					assert.Zero(t, again.Before)
				case script.AnswerMine:
					ask()
					h := p.head()
					assert.Equal(t, first, r.Epoch)
					assert.Equal(t, first, h.Epoch)
					assert.EqualValues(t, 5, h.Generation)
					assert.True(t, p.renewed())
					assert.Equal(t, before.Seq+1, r.Seq)
					assert.Equal(t, r.Seq, h.Seq)
				default:
					p.unchanged(ask)
					assert.False(t, p.renewed(), "the lease was renewed")
					assert.False(t, c.want == script.AnswerHeld &&
						(r.Left <= 0 || r.Left > leaseTime/2), "left %v", r.Left)
				}
			})
		}
	})
}

func (p *part) remap(m script.Remap) script.Reply {
	p.t.Helper()
	return p.want(script.AnswerMapped, script.NewRemap(p.keys, m))
}

// TestAcquireDropsOldBegins prevents a run that grows forever, and one that loses begins that are
// not old, or that belong to an epoch that continues.
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
		assert.Len(t, p.begun(), 2, "mine has dropped begins")
		p.lapse()
		p.want(script.AnswerAcquired, claim)
		got, want := p.begun(),
			map[string][]int64{young: {4}}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
	})
}

// TestAcquireGoesOn: a caller that names the epoch before as its own is still the same owner. A
// batch that it began in that epoch is alive, and is not dropped however old it is. When the owner
// is gone, or another came between, the batch is not alive.
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
			r := p.want(script.AnswerFound,
				script.NewAsk(p.keys, &ask))
			assert.Equal(t, want, r.Found)
		}
		forget := func(want string) {
			t.Helper()
			p.want(want, script.NewForget(p.keys,
				&script.Forget{ID: 2, Gen: p.head().Gen}))
		}
		for range 2 {
			goOn()
		}
		h := p.head()
		assert.Equal(t, since, h.Since)
		assert.Equal(t, p.self.Epoch, h.Epoch)
		p.begin(3, 2, 6)
		find(4|8, 4, 4)
		forget(script.AnswerInFlight)

		p.self.Epoch--
		goOn() // another came between
		h = p.head()
		assert.Equal(t, h.Epoch, h.Since)
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
				h := p.head()
				assert.Equal(t, before.Seq+1, h.Seq)
				assert.Equal(t, h.Seq, r.Seq)
				assert.Equal(t, p.self.Epoch, h.Epoch)
				got, want := p.begun(),
					(map[string][]int64{left: {4}})
				assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
				assert.LessOrEqual(t, p.lease(), time.Duration(0), "it is still held")
				p.want(script.AnswerReleased, call)
				p.want(script.AnswerLapsed,
					script.NewBatch(p.keys, p.self, &script.Batch{}))
				old := p.self.Epoch
				r = p.acquire()
				assert.Equal(t, r.Before, old)
				assert.Greater(t, r.Epoch, old)
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
		require.Nil(t, p.head())
		r := p.remap(script.Remap{MapVersion: 3, Bear: true})
		h := p.head()
		assert.EqualValues(t, 3, h.MapVersion)
		assert.Zero(t, h.SharedUntil)
		assert.Equal(t, uint64(r.Now/time.Millisecond)*1024, h.Epoch)
		assert.Equal(t, h.Epoch, r.Epoch)
		assert.False(t, h.Lost)
		born := p.head().Epoch
		r = p.remap(script.Remap{MapVersion: 4, Span: time.Hour, Bear: true})
		h = p.head()
		assert.EqualValues(t, 4, h.MapVersion)
		assert.Equal(t, r.Now+time.Hour, h.SharedUntil)
		assert.Equal(t, h.SharedUntil, r.SharedUntil)
		assert.Equal(t, born, h.Epoch)
		until := r.SharedUntil
		r = p.remap(script.Remap{MapVersion: 2, Span: time.Minute})
		h = p.head()
		assert.EqualValues(t, 4, h.MapVersion, "moved back")
		assert.Equal(t, until, h.SharedUntil)
		assert.EqualValues(t, 4, r.MapVersion)
		assert.Equal(t, until, r.SharedUntil)
		r = p.remap(script.Remap{Span: 2 * time.Hour})
		assert.Equal(t, r.Now+
			2*time.Hour, r.SharedUntil)
		assert.EqualValues(t, 4, r.MapVersion)
	})
}

// TestLost: a partition that lost members stays lost until an operator creates it anew. Then it can
// be acquired, and is not lost again.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.mark(1, 2, 4, 6)
		p.must(p.client.SRem(t.Context(), p.fresh(1), rawMembers(6)).Err())
		p.remap(script.Remap{MapVersion: 1, Lost: true})
		p.remap(script.Remap{MapVersion: 1, Span: time.Hour})
		h := p.head()
		assert.True(t, h.Lost, "head %+v", h)
		assert.EqualValues(t, 3, h.Gens[p.g].Fresh)
		p.unchanged(func() {
			p.want(script.AnswerAmnesia,
				script.NewRemap(p.keys, script.Remap{MapVersion: 1, Bear: true}))
		})
		p.markAs(script.AnswerShared, 1, 8) // what had begun is still marked
		r := p.remap(script.Remap{MapVersion: 1, Bear: true, Span: 2 * time.Hour})
		h = p.head()
		assert.False(t, h.Lost, "head %+v", h)
		assert.Equal(t, r.Now+2*time.Hour, h.SharedUntil)
		assert.Equal(t, script.Gen{Newest: 1}, h.Gens[p.g])
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, &script.Fold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 3, Last: true,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: []int64{2, 4, 8}}},
		}))
		g := p.head().Gens[p.g]
		assert.LessOrEqual(t, g.Fresh+g.Kept, int64(3), "what head counts")
		p.lapse()
		p.acquire()
	})
}

func (p *part) markAs(answer string, n int, ids ...int64) {
	p.t.Helper()
	p.want(answer, script.NewBatch(p.keys, p.self, p.turn(n, ids, nil)))
}

// TestClockBack prevents writes to a generation that is over already, on a promoted server whose
// clock is late.
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
	assert.Equal(t, p.g, r.Gen)
	assert.Equal(t, epoch+1, r.Epoch)
	assert.Equal(t, fence+1, r.Fence)
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
				// miniredis does not say the type of an error inside a script.
				assert.Error(t, r.Err, "%s, %s: %+v", name, call, r)
				assert.False(t, !errors.Is(r.Err, script.ErrUnreadable) &&
					(name == "version" || b.Name != "miniredis"), "%s, %s: %+v", name, call, r)
			}
			assert.Zero(t, b.Client.Exists(t.Context(), p.fresh(1)).Val(),
				"%s: something was written", name)
		}
	})
}
