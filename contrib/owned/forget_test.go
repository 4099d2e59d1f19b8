package owned

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestAKeyThatBeginsBesideAForget: a claim is granted between any two steps of a Forget in the same
// process. Only its entry keeps a second claim from beginning while the handler runs, so Forget
// must fail with ErrInFlight.
func TestAKeyThatBeginsBesideAForget(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		w.claim(s, request(1000)) // the server has the scripts
		cut := &stepper{do: func(int64) {}}
		w.client.AddHook(cut)
		for step, struck := int64(1), true; struck; step++ {
			struck = false
			r := request(int(step))
			o.renewing.Store(true) // its batch writes do not count as steps
			first := cut.n.Load()
			cut.do = func(n int64) {
				if n != first+step || struck {
					return
				}
				struck = true
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
			}
			err := s.Forget(w.Context(), []driver.ID{r.ID}, storyHold)[0]
			cut.do = func(int64) {}
			o.renewing.Store(false)
			if !struck {
				assert.GreaterOrEqual(w, step, int64(4), "the test does not cut where it should")
				continue
			}
			assert.ErrorIs(w, err, dedup.ErrInFlight, "step %d: forgotten while it runs", step)
			w.wants(fmt.Sprint("beside its handler, step ", step), w.claim(s, request(int(step))),
				dedup.InFlight, 1)
			a := w.finish(s, success(&r))
			assert.True(w, a.Held && a.Written, "its end, step %d: %+v", step, a)
			w.wants("and then", w.claim(s, request(int(step))), dedup.Duplicate, 0)
		}
	})
}

// TestLookupAfterAForgetElsewhere: the owner remembers a key that has ended, for a caller that
// sends the completion again. It must not answer a Lookup from that memory.
func TestLookupAfterAForgetElsewhere(t *testing.T) {
	story(t, func(w *world) {
		s, other := w.process(), w.process()
		w.own(s)
		r := request(1)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		w.finish(s, success(&r))
		look := func(when string, want driver.State) {
			w.Helper()
			for _, at := range []*Store{s, other} {
				a := at.Lookup(w.Context(), []driver.ID{r.ID})[0]
				assert.True(w, a.Err == nil && a.Record.State == want, "%s: %v, %v; want %v", when,
					a.Record.State, a.Err, want)
			}
		}
		look("done", driver.StateSucceeded)
		must(w, other.Forget(w.Context(), []driver.ID{r.ID}, storyHold)[0])
		look("forgotten", driver.StateAbsent)
		w.wants("after it", w.claim(s, request(1)), dedup.Acquired, 1)
	})
}

// TestAForgottenKeyIsNoSuspect: a forgotten key is not a suspect of the owner, even if another
// process forgot it, nor of later owners. The other keys of its batch still are.
func TestAForgottenKeyIsNoSuspect(t *testing.T) {
	story(t, func(w *world) {
		dead, s, other := w.process(), w.process(), w.process()
		w.own(dead)
		for _, a := range dead.Claim(w.Context(),
			[]driver.ClaimRequest{request(1), request(2), request(3)}) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		w.crash(dead)
		pass(w.opts.Lease)
		o := w.own(s)
		w.begins("at first", o, 1, 3)
		forget := func(at *Store, n int) {
			w.Helper()
			r := request(n)
			must(w, at.Forget(w.Context(), []driver.ID{r.ID}, storyHold)[0])
		}
		forget(other, 1)
		pass(w.opts.Lease)
		w.begins("forgotten elsewhere", o, 1, 2)
		w.wants("it", w.claim(s, request(1)), dedup.Acquired, 1)
		forget(s, 2)
		w.begins("forgotten here", o, 2, 1) // and the begin of the first
		w.crash(s)
		pass(w.opts.Lease)
		if st := w.own(other).Stats(); st.Suspects != 2 { // the third, and the first
			w.Errorf("want two suspects: %+v", st)
		}
		w.wants("forgotten before", w.claim(other, request(2)), dedup.Acquired, 1)
		w.wants("not forgotten", w.claim(other, request(3)), dedup.Acquired, 2)
	})
}
