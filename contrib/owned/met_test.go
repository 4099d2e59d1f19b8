package owned

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestAKeyThatWasMetIsFedBeforeItsEntryGoes: a claim that finds an entry makes none of its own. The
// entry may go before the claim has reached the inner store, and it may be of another source, whose
// keys the filter does not know. A claim that asks then must not find the key new.
func TestAKeyThatWasMetIsFedBeforeItsEntryGoes(t *testing.T) {
	for name, kind := range map[string]struct{ ended, same bool }{
		"claimed": {}, "ended at the inner store": {ended: true},
		"claimed, and the entry goes at once": {same: true},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				w.own(s)
				other := Partition{Source: "group/other", Number: 0, Count: 1, Generation: 1}
				o, err := s.Acquire(w.Context(), other)
				must(w, err)
				synctest.Wait()
				r := request(1)
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
				danger := driver.Renewal{ID: r.ID, Token: r.Token, Lease: r.Lease, Hold: r.Hold,
					Steps: []byte("x"), Window: w.opts.Window}
				a := s.Renew(w.Context(), []driver.Renewal{danger})[0]
				require.NoError(w, a.Err)
				require.True(w, a.Held, "it becomes a claim of the inner store: %+v", a)
				end := func() {
					back := success(&r)
					back.State, back.EffectApplied = driver.StateReleased, false
					a := s.Finish(w.Context(), []driver.Finish{back})[0]
					assert.True(w, a.Err == nil && a.Held, "released: %+v", a)
				}
				// as when others have ended
				goes := func() { s.table.each(func(e *entry) bool { return e.id != r.ID }) }
				from := func(n int) driver.ClaimRequest {
					r := request(n)
					r.Origin.Source = other.Source
					return r
				}
				if kind.ended {
					end()
				}
				var second driver.Answer
				claim := func() {
					r := from(1)
					if second = w.claim(s, r); second.Outcome == dedup.Acquired {
						w.finish(s, success(&r))
					}
				}
				s.between = once(func() {
					if !kind.ended {
						end()
					}
					goes()
					claim()
				})
				if kind.same {
					s.met, s.between = once(func() { end(); goes(); claim() }), nil
				}
				first := w.claim(s, from(1))
				assert.NotEqual(w, second.Outcome == dedup.Acquired,
					first.Outcome == dedup.Acquired, "want one of the two to get the key")
				st := o.Stats()
				assert.False(w, st.Saved != 0 && !kind.same, "none was new: %+v", st)
			})
		})
	}
}
