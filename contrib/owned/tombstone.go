package owned

import (
	"errors"
	"sync/atomic"

	"github.com/onceward/onceward/bloom"
)

// lossy is a partition's filter for as long as the partition is held. The Store still knows
// partitions that were, and entries of the table point at them; the filter, which is all their
// memory, is let go of. Without it nothing is known.
type lossy struct{ atomic.Pointer[bloom.Filter] }

var errNoFilter = errors.New("owned: the partition is not held any more")

// WhereAll is that of bloom.
func (f *lossy) WhereAll(all []bloom.Query) (oldest int64) {
	if filter := f.Load(); filter != nil {
		return filter.WhereAll(all)
	}
	for i := range all {
		all[i].In, all[i].Answer, all[i].Reason = anywhere, bloom.Unknown, bloom.Lost
	}
	return 0
}

// Where is that of bloom.
func (f *lossy) Where(id [16]byte) (oldest int64, in uint64, _ bloom.Answer, _ bloom.Reason) {
	if filter := f.Load(); filter != nil {
		return filter.Where(id)
	}
	return 0, anywhere, bloom.Unknown, bloom.Lost
}

// Check is that of bloom.
func (f *lossy) Check(id [16]byte) (bloom.Answer, bloom.Reason) {
	if filter := f.Load(); filter != nil {
		return filter.Check(id)
	}
	return bloom.Unknown, bloom.Lost
}

// Stats is that of bloom.
func (f *lossy) Stats() bloom.Stats {
	if filter := f.Load(); filter != nil {
		return filter.Stats()
	}
	return bloom.Stats{}
}

// Wrong is that of bloom.
func (f *lossy) Wrong(n int) {
	if filter := f.Load(); filter != nil {
		filter.Wrong(n)
	}
}

// letGo leaves of an ownership that is over what says so. The sets stay: marks of handlers that run
// on are named by them, and written for as long as nobody else has the partition.
func (o *Ownership) letGo() {
	o.filter.Store(nil)
	o.feed.Store(nil)
}

// letGoAll is letGo for one from which nothing begins any more: claims under way count by the
// suspects.
func (o *Ownership) letGoAll() {
	o.letGo()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspects, o.begins = make(map[int64]*openAttempt), make(map[*begin]struct{})
	o.suspected.Store(0)
	for _, g := range o.sets {
		g.sent = nil
	}
}
