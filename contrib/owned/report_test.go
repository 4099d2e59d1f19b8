package owned

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

// TestTheFilterIsToldOnceAMinute: a dashboard sees how full a filter is even while nothing happens
// to it.
func TestTheFilterIsToldOnceAMinute(t *testing.T) {
	story(t, func(w *world) {
		var mu sync.Mutex
		var told []dedup.Event
		w.opts.Observer.FilterState = func(e dedup.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}
		s := w.process()
		w.own(s)
		r := request(1)
		w.claim(s, r)
		w.finish(s, success(&r))
		mu.Lock()
		told = nil
		mu.Unlock()
		pass(5*time.Minute + 30*time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.True(w, len(told) == 5 && told[4].Fill > 0 && told[4].Reason == "",
			"told in five minutes: %+v", told)
	})
}
