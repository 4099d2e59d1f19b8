package owned

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestWhatIsOverIsLetGoOf: a filter has megabytes, and after weeks of rebalances a member has held
// every partition, so the filter must be freed. A partition that was held is elsewhere now, and a
// request for it is not the caller's mistake.
func TestWhatIsOverIsLetGoOf(t *testing.T) {
	for name, end := range map[string]func(w *world, o *Ownership){
		"released": func(w *world, o *Ownership) { must(w, o.Release(w.Context())) },
		"lost": func(w *world, o *Ownership) {
			w.freeze(o, w.opts.Lease+time.Second)
			next := w.process()
			w.own(next)
			must(w, next.Close(context.Background()))
			w.claim(o.s, request(9))
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				r := request(1)
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
				filter := weak.Make(o.filter.Load())
				end(w, o)
				synctest.Wait()
				for range 3 { // pools are emptied by the second
					runtime.GC()
				}
				assert.Nil(w, filter.Value(), "the filter is still there")
				err := context.Cause(o.Context())
				assert.False(w, !errors.Is(err, ErrReleased) &&
					!errors.Is(err, ErrLost), "it is over: %v", err)
				w.wants("another key", w.claim(s, request(2)), dedup.InFlight, 0)
				a := s.Finish(w.Context(), []driver.Finish{success(&r)})[0]
				assert.NoError(w, a.Err, "an end")
				o.Stats()
				w.own(s)
				w.wants("when it is acquired again", w.claim(s, request(3)), dedup.Acquired, 1)
			})
		})
	}
}
