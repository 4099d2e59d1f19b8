package owned

import (
	"testing"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/internal/redistest"
)

// TestLoadRotatesBeforeOpen begins a generation when all others are covered and the feed is not
// open yet. If nothing covered it, the filter would know nothing until the next owner.
func TestLoadRotatesBeforeOpen(t *testing.T) {
	_, client := redistest.Mini(t)
	o := takeLoaded(t, plainStore(t, client, fewBuckets("before")), somePartition)
	ids := idsOf(t, "marked", 10)
	o.mark(t, ids)
	o.feed.Store(o.filter.Load().Begin(bloom.Source{Name: o.sourceName(), Epoch: o.epoch}))
	l := o.loader()
	rotated := false
	l.open = func() {
		if !rotated {
			rotated = true
			o.clock.Add(o.s.opts.slice().Milliseconds())
			_, _ = o.filter.Check([16]byte{})
		}
		o.openFeed()
	}
	noErr(t, l.load(t.Context()))
	o.knows(t, ids)
}
