package owned

import (
	"errors"
	"sync/atomic"

	"github.com/onceward/onceward/bloom"
)

// lossy is a partition's filter for as long as the partition is held. Earlier Ownerships stay in
// memory, because the Store knows them and entries of the table point at them. So their filter,
// which is nearly all of their memory, is dropped. Without a filter every answer is Unknown.
type lossy struct{ atomic.Pointer[bloom.Filter] }

var errNoFilter = errors.New("owned: the partition is not held any more")

// WhereAll is bloom's WhereAll.
func (f *lossy) WhereAll(all []bloom.Query) (oldest int64) {
	if filter := f.Load(); filter != nil {
		return filter.WhereAll(all)
	}
	for i := range all {
		all[i].In, all[i].Answer, all[i].Reason = anywhere, bloom.Unknown, bloom.Lost
	}
	return 0
}

// Where is bloom's Where.
func (f *lossy) Where(id [16]byte) (oldest int64, in uint64, _ bloom.Answer, _ bloom.Reason) {
	if filter := f.Load(); filter != nil {
		return filter.Where(id)
	}
	return 0, anywhere, bloom.Unknown, bloom.Lost
}

// Check is bloom's Check.
func (f *lossy) Check(id [16]byte) (bloom.Answer, bloom.Reason) {
	if filter := f.Load(); filter != nil {
		return filter.Check(id)
	}
	return bloom.Unknown, bloom.Lost
}

// Stats is bloom's Stats.
func (f *lossy) Stats() bloom.Stats {
	if filter := f.Load(); filter != nil {
		return filter.Stats()
	}
	return bloom.Stats{}
}

// Wrong is bloom's Wrong.
func (f *lossy) Wrong(n int) {
	if filter := f.Load(); filter != nil {
		filter.Wrong(n)
	}
}

// letGo drops the filter and the feed of an ownership that is over. The names of the sets stay,
// because handlers that still run need them for their marks, which are written until somebody else
// has the partition.
func (o *Ownership) letGo() {
	o.filter.Store(nil)
	o.feed.Store(nil)
}

// letGoAll does what letGo does, and drops the suspects, too. It may be called only when no key
// begins any more, because claims under way count runs by the suspects.
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
