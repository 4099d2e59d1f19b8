package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// TestAsk looks for ids that are everywhere and nowhere.
func TestAsk(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.begin(1, 20)
		p.lapse()
		p.acquire()
		p.begin(1, 20, 22)
		p.lapse()
		p.acquire()
		p.begin(1, 22, 24)
		p.want(script.AnswerDone,
			script.NewBatch(p.keys, p.self, p.turn(1, []int64{2, 4}, []int64{4, 6})))
		p.mark(2, 8)
		p.must(p.client.Set(t.Context(), p.bucket(1), rawMembers(10, 13), 0).Err())
		p.must(p.client.Set(t.Context(), p.bucket(2), rawMembers(12, 2), 0).Err())
		ask := script.Ask{
			Epoch: p.self.Epoch, Gen: p.g, Newest: 2,
			IDs:   []int64{2, 4, 6, 8, 10, 12, 14, 20, 22, 24},
			Fresh: []string{p.fresh(1), p.fresh(2), p.fresh(3)},
			// Of bucket 2 nobody asks for 2, and of bucket 3, which is not there, for all.
			Buckets: []script.Bucket{{Key: p.bucket(1), Of: []int{4, 5}},
				{Key: p.bucket(2), Of: []int{5}}, {Key: p.bucket(3), Of: []int{0, 1, 2, 3, 4, 5}}},
		}
		foreign := ask
		foreign.Foreign = true
		const done, touched, begun, other = 1, 2, 4, 8
		for name, c := range map[string]struct {
			ask  script.Ask
			want []script.IDState
		}{
			"owner": {ask, []script.IDState{done, done, touched, done, done,
				done, 0, 0, 0, 0}},
			"foreign": {foreign, []script.IDState{done, done, touched, done, done, done,
				0, 2 * other, begun | other, begun}},
		} {
			p.unchanged(func() {
				r := p.want(script.AnswerFound, script.NewAsk(p.keys, &c.ask))
				assert.Equal(t, c.want, r.Found, "%s", name)
				assert.Equal(t, c.ask.Foreign, r.Live, "%s", name)
			}, p.fresh(1), p.fresh(2), p.bucket(1), p.bucket(2))
		}
		f := script.IDState(begun | 2*other)
		assert.Equal(t, 2, f.Runs())
		assert.True(t, f.Begun() && !f.Done() && !f.Touched(), "%d is read as %t %t %t %d", f,
			f.Done(), f.Touched(), f.Begun(), f.Runs())

		p.lapse()
		r := p.want(script.AnswerFound, script.NewAsk(p.keys, &foreign))
		assert.False(t, r.Live, "nobody lives, and somebody is found")
		p.want(script.AnswerFound,
			script.NewAsk(p.keys, &script.Ask{Epoch: p.self.Epoch}))
	})
}

// TestAskRefuses also prevents an answer from a list of sets that is not complete any more.
func TestAskRefuses(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare        func(p *part)
			owner, foreign string
		}{
			"as it was": {func(*part) {}, script.AnswerFound, script.AnswerFound},
			"another set": {func(p *part) {
				p.mark(2, 4)
			}, script.AnswerFound, script.AnswerStale},
			"another epoch": {(*part).rob, script.AnswerStale, script.AnswerStale},
			"a generation more": {func(p *part) {
				p.poke("g", p.g+1)
			}, script.AnswerFound, script.AnswerStale},
			"lost": {func(p *part) {
				p.remap(script.Remap{Lost: true})
			}, script.AnswerAmnesia, script.AnswerAmnesia},
			"no head": {func(p *part) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, script.AnswerAmnesia, script.AnswerAmnesia},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				p.mark(1, 2)
				ask := script.Ask{Epoch: p.self.Epoch, IDs: []int64{2},
					Fresh: []string{p.fresh(1)}}
				c.prepare(p)
				p.want(c.owner, script.NewAsk(p.keys, &ask))
				ask.Foreign, ask.Gen, ask.Newest = true, p.g, 1
				if r := p.want(c.foreign,
					script.NewAsk(p.keys, &ask)); r.Answer == script.AnswerStale {
					h := p.head()
					assert.Equal(t, h.Gen, r.Gen)
					assert.Equal(t, h.Gens[h.Gen].Newest, r.Newest)
					assert.Equal(t, h.Epoch, r.Epoch)
				}
			})
		}
	})
}

// TestAskIsAligned prevents an id that is found across two others.
func TestAskIsAligned(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.begin(1, 0x0102030405060708, 0x0902030405060708, 0x0806040200020406)
		ask := script.Ask{
			Epoch: p.self.Epoch, Foreign: true, Gen: p.g,
			IDs: []int64{0x0506070809020304, 0x0203040506070808, 0x0806040200020406, 0},
		}
		got := p.want(script.AnswerFound,
			script.NewAsk(p.keys, &ask)).Found
		assert.Equal(t, []script.IDState{0, 0, 4, 0}, got)
	})
}
