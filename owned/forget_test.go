package owned

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onceward/onceward/dedup"
)

// TestAKeyThatBeginsBesideAForget: a claim is granted between any two steps of a Forget in the same process.
// Its entry is all that keeps a second claim from beginning beside the handler, and Forget says so.
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
			o.renewing.Store(true) // its turns are no steps
			first := cut.n.Load()
			cut.do = func(n int64) {
				if n != first+step || struck {
					return
				}
				struck = true
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
			}
			err := s.Forget(w.Context(), []dedup.ID{r.ID}, storyHold)[0]
			cut.do = func(int64) {}
			o.renewing.Store(false)
			if !struck {
				if step < 4 {
					w.Errorf("it takes %d steps: the test does not cut where it should", step-1)
				}
				continue
			}
			if !errors.Is(err, dedup.ErrInFlight) {
				w.Errorf("step %d: forgotten with %v while it runs", step, err)
			}
			w.wants(fmt.Sprint("beside its handler, step ", step), w.claim(s, request(int(step))), dedup.InFlight, 1)
			if a := w.finish(s, success(&r)); !a.Held || !a.Written {
				w.Errorf("its end, step %d: %+v", step, a)
			}
			w.wants("and then", w.claim(s, request(int(step))), dedup.Duplicate, 0)
		}
	})
}
