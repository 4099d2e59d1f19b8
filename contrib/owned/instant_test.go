package owned

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestAMachineThatWasSuspendedHoldsNothing: its monotonic clock was stopped, and Redis' clock was
// not. An answer from before does not count any more; an answer from after does.
func TestAMachineThatWasSuspendedHoldsNothing(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		var slept atomic.Int64
		s.wall = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		suspend := func() { slept.Add(int64(w.opts.Lease)) }
		o := w.own(s)
		o.renewing.Store(true) // nobody else renews
		r := request(1)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		h := w.wired()
		suspend()
		h.lose = 1
		renewal := driver.Renewal{ID: r.ID, Token: r.Token, Lease: r.Lease, Hold: r.Hold}
		a := s.Renew(w.Context(), []driver.Renewal{renewal})[0]
		assert.False(w, a.Held, "a renewal after a pause, with no word of Redis: %+v", a)
		assert.ErrorIs(w, a.Err, errNoReply)
		a = s.Renew(w.Context(), []driver.Renewal{renewal})[0]
		assert.True(w, a.Held, "a renewal that is answered: %+v", a)
		h.before = once(suspend)
		a = s.Claim(w.Context(), []driver.ClaimRequest{request(2)})[0]
		assert.ErrorIs(w, a.Err, errLate, "a begin that was answered before the pause")
		assert.LessOrEqual(w, o.left(), time.Duration(0), "the partition is held no longer")
		o.renewing.Store(false)
		assert.LessOrEqual(w, s.renewDue(s.now()), w.opts.Lease/triesOf, "the next look")
		s.working.Wait()
		was := o.Stats().Saved
		w.wants("a key after the renewal", w.claim(s, request(3)), dedup.Acquired, 1)
		assert.Equal(w, was+1, o.Stats().Saved, "it was to be new")
	})
}
