package owned

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// TestAMachineThatWasSuspendedHoldsNothing: its monotonic clock has stood still, and Redis' has
// not. What was answered before is believed no more; what is answered after is.
func TestAMachineThatWasSuspendedHoldsNothing(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		var slept atomic.Int64
		s.wall = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		suspend := func() { slept.Add(int64(w.opts.Lease)) }
		o := w.own(s)
		o.renewing.Store(true) // nobody renews beside
		r := request(1)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		h := w.wired()
		suspend()
		h.lose = 1
		renewal := dedup.Renewal{ID: r.ID, Token: r.Token, Lease: r.Lease, Hold: r.Hold}
		if a := s.Renew(w.Context(), []dedup.Renewal{renewal})[0]; a.Held ||
			!errors.Is(a.Err, errNoReply) {
			w.Errorf("a renewal after a pause, with no word of Redis: %+v", a)
		}
		if a := s.Renew(w.Context(), []dedup.Renewal{renewal})[0]; !a.Held {
			w.Errorf("a renewal that is answered: %+v", a)
		}
		h.before = once(suspend)
		if a := s.Claim(w.Context(), []dedup.ClaimRequest{request(2)})[0]; !errors.Is(a.Err,
			errLate) {
			w.Errorf("a begin that was answered before the pause: %+v", a)
		}
		if left := o.left(); left > 0 {
			w.Errorf("the partition is held for another %v", left)
		}
		o.renewing.Store(false)
		if next := s.renewDue(s.now()); next > w.opts.Lease/triesOf {
			w.Errorf("the next look is in %v: a renewal is due", next)
		}
		s.working.Wait()
		was := o.Stats().Saved
		w.wants("a key after the renewal", w.claim(s, request(3)), dedup.Acquired, 1)
		if st := o.Stats(); st.Saved != was+1 {
			w.Errorf("it was to be new: %+v", st)
		}
	})
}
