package owned

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var errNoReply = errors.New("the reply was lost")

// wire loses and delays the replies of a world.
type wire struct {
	lose  int           // how many replies of scripts are lost
	delay time.Duration // how long the next one takes

	before func() // is called before a reply is given
}

func (h *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		script, ok := cmd.(*redis.Cmd)
		if !ok || err != nil {
			return err
		}
		if h.before != nil {
			h.before()
		}
		if h.delay > 0 {
			pass(h.delay)
			h.delay = 0
		}
		if h.lose > 0 {
			h.lose--
			script.SetVal(nil)
			script.SetErr(errNoReply)
			return errNoReply
		}
		return nil
	}
}

// wired makes the replies of a world pass through a wire.
func (w *world) wired() *wire {
	h := &wire{}
	w.client.AddHook(h)
	return h
}

// TestALostReplyOfAMark: the mark is on record, but its reply is lost. Sent again, the mark is
// held. Another claim finds it after the lease: the filter had the key before the mark was sent.
func TestALostReplyOfAMark(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		again, dead := request(1), request(2)
		w.wants("a new key", w.claim(s, again), dedup.Acquired, 1)
		w.wants("another", w.claim(s, dead), dedup.Acquired, 1)
		h := w.wired()
		for _, r := range []*driver.ClaimRequest{&again, &dead} {
			h.lose = 1
			a := s.Finish(w.Context(), []driver.Finish{success(r)})[0]
			assert.ErrorIs(w, a.Err, errNoReply, "a mark without a reply")
			assert.True(w, !a.Held && !a.Written, "a mark without a reply: %+v", a)
		}
		a := w.finish(s, success(&again))
		assert.True(w, a.Held && a.Written, "the mark sent again: %+v", a)
		w.wants("before its lease is over", w.claim(s, request(2)), dedup.InFlight, 1)
		pass(storyLease)
		w.wants("when its lease is over", w.claim(s, request(2)), dedup.Duplicate, 0)
		w.wants("the other one", w.claim(s, request(1)), dedup.Duplicate, 0)
		o.mu.Lock()
		defer o.mu.Unlock()
		assert.Zero(w, o.inFlight.Load(), "both have ended")
		assert.Empty(w, o.suspects)
	})
}

// TestALostReplyOfABegin: the same claim sends the same begin again, and only then it is granted.
func TestALostReplyOfABegin(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		w.claim(s, request(9)) // the server has the scripts
		h := w.wired()
		r := request(1)
		h.lose = 1
		a := s.Claim(w.Context(), []driver.ClaimRequest{r})[0]
		assert.ErrorIs(w, a.Err, errNoReply, "a begin without a reply")
		w.wants("somebody else", w.claim(s, request(1)), dedup.InFlight, 1)
		w.wants("the same claim", w.claim(s, r), dedup.Acquired, 1)
		n := w.client.HLen(w.Context(), o.names.run).Val()
		assert.EqualValues(w, 2, n, "begins on record")
		a = w.finish(s, success(&r))
		assert.True(w, a.Held, "its end: %+v", a)
		n = w.client.HLen(w.Context(), o.names.run).Val()
		assert.EqualValues(w, 1, n, "begins on record")
	})
}

// TestALateGrantIsNotGiven: a begin was answered so late that the partition might end before the
// claim.
func TestALateGrantIsNotGiven(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		w.claim(s, request(9))
		h := w.wired()
		o.renewing.Store(true)
		h.delay = w.opts.Lease - storyLease
		r := request(1)
		a := s.Claim(w.Context(), []driver.ClaimRequest{r})[0]
		assert.NotEqual(w, dedup.Acquired, a.Outcome, "a late grant")
		assert.ErrorIs(w, a.Err, errLate)
		back := success(&r)
		back.State, back.EffectApplied, back.NotAttempted = driver.StateReleased, false, true
		w.finish(s, back)
		o.renewing.Store(false)
		w.wants("when it was given back", w.claim(s, request(1)), dedup.Acquired, 1)
	})
}
