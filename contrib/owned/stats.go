package owned

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// counters of one ownership.
type counters struct {
	answers [3]atomic.Uint64 // by bloom.Answer
	saved   atomic.Uint64
	stale   atomic.Uint64
	lost    atomic.Uint64
}

func (c *counters) count(says bloom.Answer, saved int) {
	c.answers[says].Add(1)
	c.saved.Add(uint64(saved)) // 0 or 1
}

// Stats are the figures of one [Ownership].
type Stats struct {
	// New, Maybe and Unknown count claims by the filter's answer about their keys. Saved counts
	// claims that were granted without a claim of the inner store.
	New, Maybe, Unknown, Saved uint64
	// Stale counts ends that were refused because the partition had another owner by then. Each
	// stands for an effect that may have happened twice.
	Stale uint64
	// InFlight is the number of keys that have begun without a claim of the inner store and have
	// not ended. Suspects is the number of keys that have begun, mostly under an earlier owner, and
	// are not known to have ended.
	InFlight, Suspects int
	// Loaded reports that every mark is in the filter. Before that, no key is New.
	Loaded bool
	// Members and OfMembers show how far the loading is. Members is how many members of the
	// partition's sets are in the filter by now, and OfMembers is how many Redis counts.
	Members, OfMembers int64
	// Shared reports that every key is claimed at the inner store: see the package comment.
	Shared bool
	// Epoch of the partition.
	Epoch uint64
	// Filter holds the figures of the filter. To make them, Stats samples some thousand places of
	// the filter.
	Filter bloom.Stats
}

// Stats returns the figures of the partition: call it once a minute, not once a message.
func (o *Ownership) Stats() Stats {
	s := Stats{
		New: o.stats.answers[bloom.ProvenNew].Load(), Maybe: o.stats.answers[bloom.Maybe].Load(),
		Unknown: o.stats.answers[bloom.Unknown].Load(), Saved: o.stats.saved.Load(),
		Stale:    o.stats.stale.Load(),
		InFlight: int(o.inFlight.Load()), Loaded: o.loaded.Load(), Shared: o.isShared(),
		Filter: o.filter.Stats(),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Members, s.OfMembers = o.loading.members.Load(), o.loading.of.Load()
	s.Suspects, s.Epoch = len(o.suspects), o.epoch
	return s
}

// stale counts an end that was refused. The Deduper notifies its observer.
func (o *Ownership) stale() { o.stats.stale.Add(1) }

// notifyFilter translates an event of the filter for the observer.
func (o *Ownership) notifyFilter(e bloom.Event) {
	o.notifyState(e.Fill, e.Estimated, e.Reason.String(), nil)
}

// notifyState tells the observer the state of the filter.
func (o *Ownership) notifyState(fill, estimated float64, reason string, err error) {
	hook := o.s.opts.Observer.FilterState
	if hook == nil || o.filter.Load() == nil {
		return
	}
	hook(dedup.Event{Fill: fill, Estimated: estimated, Observed: o.filter.Stats().Observed,
		Reason: reason, Err: err})
}

// answerSlabs keeps slices of answers from finished calls for later calls.
var answerSlabs sync.Pool

// answersKept bounds the length of a slice that is kept.
const answersKept = 4096

// answers returns n zero answers, or nil if n is 0.
func answers(n int) []driver.Answer {
	if n == 0 {
		return nil
	}
	if s, _ := answerSlabs.Get().(*[]driver.Answer); s != nil && cap(*s) >= n {
		return (*s)[:n]
	}
	return make([]driver.Answer, n, 1<<bits.Len(uint(n-1))) // n is above 0
}

// refuseEnded reports whether the context has ended. If so, it answers every item with the
// context's cause.
func refuseEnded(ctx context.Context, lists ...[]driver.Answer) bool {
	if ctx.Err() == nil {
		return false
	}
	for _, list := range lists {
		for i := range list {
			list[i].Err = context.Cause(ctx)
		}
	}
	return true
}

// Wake implements [driver.Waker] with the inner store's Wake.
func (s *Store) Wake(ctx context.Context, ids []driver.ID) error {
	if inner, ok := s.inner.(driver.Waker); ok {
		return inner.Wake(ctx, ids)
	}
	return errors.ErrUnsupported
}

// Listen implements [driver.Waker] with the inner store's Listen.
func (s *Store) Listen(ctx context.Context, id driver.ID, woken func()) (stop func(), err error) {
	if inner, ok := s.inner.(driver.Waker); ok {
		return inner.Listen(ctx, id, woken)
	}
	return nil, errors.ErrUnsupported
}

// Recycle takes back answers that a method has returned. The caller must not look at them any more.
// A [dedup.Deduper] calls it; other callers may.
func (s *Store) Recycle(answers []driver.Answer) {
	if cap(answers) == 0 || cap(answers) > answersKept {
		return
	}
	clear(answers)
	answerSlabs.Put(&answers)
}
