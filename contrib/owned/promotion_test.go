package owned

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// inTheWay claims a key at the inner store for another attempt, as one in another partition of a
// shared source does before it looks for the key there. give gives the claim back.
func (w *world) inTheWay(s *Store, n int) (give func()) {
	w.Helper()
	r := request(n)
	a := s.inner.Claim(w.Context(), []driver.ClaimRequest{r})[0]
	w.wants("at the inner store", a, dedup.Acquired, 1)
	return func() {
		w.Helper()
		back := success(&r)
		back.State, back.EffectApplied, back.NotAttempted, back.Fence = driver.StateReleased, false,
			true,
			a.Record.Fence
		a := s.inner.Finish(w.Context(), []driver.Finish{back})[0]
		require.True(w, a.Written, "given back: %+v", a)
	}
}

// TestARefusedPromotionIsNoCleanRelease: the inner store has the key in flight for another
// attempt, for a moment. A key that still runs here stays on record: the next owner must know that
// it was begun.
func TestARefusedPromotionIsNoCleanRelease(t *testing.T) {
	story(t, func(w *world) {
		s, next := w.process(), w.process()
		o := w.own(s)
		w.wants("a new key", w.claim(s, request(1)), dedup.Acquired, 1)
		give := w.inTheWay(s, 1)
		assert.Error(w, o.Release(w.Context()), "released clean")
		n := w.client.HLen(w.Context(), o.names.run).Val()
		assert.EqualValues(w, 1, n, "begins on record")
		var held *HeldError
		_, err := next.Acquire(w.Context(), only)
		assert.ErrorAs(w, err, &held, "its lease runs still")
		give()
		pass(w.opts.Lease)
		assert.Equal(w, 1, w.own(next).Stats().Suspects, "want one suspect")
		w.wants("the next attempt", w.claim(next, request(1)), dedup.Acquired, 2)
	})
}

// TestARefusedPromotionIsTriedAgain: MarkIrreversible and a release of a key that begins without
// the inner store are not answered while another attempt has the key there; sent again they are
// carried out.
func TestARefusedPromotionIsTriedAgain(t *testing.T) {
	for name, send := range map[string]func(ctx context.Context, s *Store,
		c driver.Finish) driver.Answer{
		"danger": func(ctx context.Context, s *Store, c driver.Finish) driver.Answer {
			return s.Renew(ctx, []driver.Renewal{{ID: c.ID, Token: c.Token, Fence: c.Fence,
				Lease: c.Lease, Hold: c.Hold, Window: c.Window, Irreversible: true}})[0]
		},
		"release": func(ctx context.Context, s *Store, c driver.Finish) driver.Answer {
			c.State = driver.StateReleased
			return s.Finish(ctx, []driver.Finish{c})[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				r := request(1)
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
				give := w.inTheWay(s, 1)
				c := success(&r)
				c.EffectApplied = false
				a := send(w.Context(), s, c)
				assert.Error(w, a.Err, "while another")
				assert.True(w, !a.Held && !a.Written, "while another has the key: %+v", a)
				w.wants("it is begun still", w.claim(s, request(1)), dedup.InFlight, 1)
				n := w.client.HLen(w.Context(), o.names.run).Val()
				assert.EqualValues(w, 1, n, "begins on record")
				give()
				a = send(w.Context(), s, c)
				assert.True(w, a.Err == nil && a.Held, "sent again: %+v", a)
			})
		})
	}
}

// firstLost loses the first reply of the next pipeline of scripts.
type firstLost struct {
	commands
	armed bool
}

func (h *firstLost) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *firstLost) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if script, ok := cmds[0].(*redis.Cmd); ok && h.armed {
			h.armed = false
			script.SetVal(nil)
			script.SetErr(errNoReply)
		}
		return err
	}
}

// TestEachTouchIsToldOfItsOwnTurn: more than 4096 touches take several batch writes, each with its
// own answer. A touch that used the answer of another batch write would ask the inner store for a
// key without a touch, which a later owner takes for new.
func TestEachTouchIsToldOfItsOwnTurn(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		touches := func() []touching {
			all := make([]touching, script.MaxMembers+10)
			for i := range all {
				all[i] = touching{o: o, member: member{is: int64(2 * i)}}
			}
			return all
		}
		s.touch(w.Context(), touches()) // the server has the scripts
		lost := &firstLost{armed: true}
		w.client.AddHook(lost)
		all := touches()
		s.touch(w.Context(), all)
		require.False(w, lost.armed, "it was one turn: nothing was lost")
		for i, a := range all {
			first := i < script.MaxMembers
			require.Equal(w, errors.Is(a.err, errNoReply), first, "touch %d: written", i)
			require.NotEqual(w, a.written, first, "touch %d: written", i)
			require.Equal(w, a.fence == 0, first, "touch %d: written", i)
		}
	})
}
