package guarantees_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

var skipRow = row{
	holds: map[string]func(*testing.T){
		"a copy that arrives after Mark is skipped": func(t *testing.T) {
			eachStore(t, func(t *testing.T, store dedup.Store) {
				n := newTally()
				for range 3 {
					newWorker(t, store).skim("m", func() { n.add("m") })
				}
				pass(window - time.Minute)
				newWorker(t, store).skim("m", func() { n.add("m") })
				n.want(t, "m", 1, "it was marked before the others came")
			})
		},
	},
	doubles: map[string]func(*testing.T){
		"a crash, or a concurrent duplicate, between Seen and Mark": func(t *testing.T) {
			eachStore(t, func(t *testing.T, store dedup.Store) {
				n := newTally()
				a, b := newWorker(t, store), newWorker(t, store)
				a.live(func() {
					a.skim("crash", func() { n.add("crash"); a.die() })
				})
				b.skim("crash", func() { n.add("crash") })
				n.want(t, "crash", 2, "the first has died before Mark")

				b.skim("duplicate", func() {
					newWorker(t, store).skim("duplicate", func() { n.add("duplicate") })
					n.add("duplicate")
				})
				n.want(t, "duplicate", 2, "the second came between Seen and Mark of the first")
			})
		},
	},
}

// skim handles a message in the composition Skip.
func (w *worker) skim(k string, effect func()) {
	w.t.Helper()
	seen, err := w.d.Seen(w.t.Context(), k)
	assert.NoError(w.t, err, "Seen")
	if seen {
		return
	}
	effect()
	_, err = w.d.Mark(w.t.Context(), k)
	assert.NoError(w.t, err, "Mark")
}
