package owned

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// TestAnOldCountEnds: some keys of a partition under an old count belong to another partition by
// now. The other one does not look for their marks any more once the source is not shared. So an
// owner with the old count must stop, whether it is idle or has work. The keys that it had begun
// are recorded, and are not suspects.
func TestAnOldCountEnds(t *testing.T) {
	for name, work := range map[string]bool{"idle": false, "at work": true} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				old, next := w.process(), w.process()
				next.registry.batch = 1 // a pipe holds nothing: both ends would be writing
				o := w.own(old)
				r := request(1)
				w.wants("a new key", w.claim(old, r), dedup.Acquired, 1)
				more := only
				more.Number, more.Count = 1, 2
				_, err := next.Acquire(w.Context(), more)
				must(w, err)
				if work {
					w.claim(old, request(2))
				} else {
					pass(w.opts.Lease)
				}
				synctest.Wait()
				cause := context.Cause(o.Context())
				require.ErrorIs(w, cause, ErrLost, "under the count before, Context ended")
				a := w.finish(old, success(&r))
				assert.True(w, a.Held && a.Written, "the end of what it had begun: %+v", a)
				must(w, o.Release(w.Context()))
				_, err = old.Acquire(w.Context(), only)
				assert.ErrorIs(w, err, ErrCount, "acquired again under the count before")
				again := only
				again.Count = 2
				is, err := old.Acquire(w.Context(), again)
				must(w, err)
				synctest.Wait()
				w.wants("the key", w.claim(old, request(1)), dedup.Duplicate, 0)
				st := is.Stats()
				assert.Equal(w, 0, st.Suspects, "after the change")
				assert.True(w, st.Shared, "after the change: %+v", st)
			})
		})
	}
}

// TestMisplacedBesideABirth: a partition is created between two calls of Misplaced. The process
// that calls Misplaced does not know the partition yet, so it tells this partition nothing. The
// partition must therefore be shared for long enough from its start.
func TestMisplacedBesideABirth(t *testing.T) {
	story(t, func(w *world) {
		s, other := w.process(), w.process()
		s.registry.batch, other.registry.batch = 1, 1
		o := w.own(s)
		step := w.opts.Window / shareSteps
		must(w, o.Misplaced(w.Context()))
		more := only
		more.Number, more.Count = 1, 2
		_, err := other.Acquire(w.Context(), more)
		must(w, err)
		o.renewing.Store(true) // it hears nothing of that
		pass(step - 1)
		must(w, o.Misplaced(w.Context()))
		_, heads := other.registry.lines(w.T, only.Source)
		for i, h := range heads {
			left := h.SharedUntil - time.Duration(time.Now().UnixNano())
			assert.GreaterOrEqual(w, left, w.opts.Window+
				w.opts.Hold, "a record is to be misplaced, and partition %d is shared", i)
		}
		o.renewing.Store(false)
	})
}
