package owned

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// renewals is how often a partition is renewed within its lease. triesOf is how often within a
	// lease an unanswered renewal is tried again.
	renewals = 3
	triesOf  = 20
	// tendEvery is how often the Store looks for snapshots to save.
	tendEvery = time.Minute
	// notifyEvery is how often the observer gets the state of a filter.
	notifyEvery = time.Minute
)

// The wait before another try to load a filter is random, so that processes that had the same
// failure do not try again at the same time. Its bound doubles from shortestLoadWait to
// longestLoadWait.
const (
	shortestLoadWait = 100 * time.Millisecond
	longestLoadWait  = 10 * time.Second
)

func loadWait(try int) time.Duration {
	return rand.N(min(shortestLoadWait<<min(try, 10), longestLoadWait))
}

// keepLoading tries to load the filter until it succeeds or the ownership is over. Until then every
// claim asks the stores.
func (o *Ownership) keepLoading() {
	for try := 0; ; try++ {
		err := o.load(o.ctx)
		switch {
		case err == nil:
			o.loaded.Store(true)
			o.openFeed()
			return
		case errors.Is(err, ErrAmnesia):
			o.lose(ErrAmnesia)
			return
		case o.ctx.Err() != nil:
			return
		}
		o.s.opts.Logger.Warn("owned: a filter could not be loaded", "source", o.part.Source,
			"partition", o.part.Number, "error", err)
		o.notifyState(0, 0, "loading", err)
		select {
		case <-o.ctx.Done():
			return
		case <-time.After(loadWait(try)):
		}
	}
}

// keepRenewing renews the held partitions until the Store is closed. It is the one goroutine of the
// Store. Each batch of renewals has a goroutine of its own, so that a server that hangs delays no
// other.
func (s *Store) keepRenewing(over chan struct{}) {
	defer close(over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var swept time.Duration
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		}
		s.mu.RLock()
		closed := s.closed
		s.mu.RUnlock()
		if closed {
			return
		}
		now := s.now()
		next := s.renewDue(now)
		if now-swept >= s.opts.Lease {
			s.sweep(now)
			for _, o := range s.sorted() {
				o.acquit()
			}
			swept = now
		}
		timer.Reset(next)
	}
}

// renewDue renews what is due and returns how long to wait for the next.
func (s *Store) renewDue(now time.Duration) time.Duration {
	lease := s.opts.Lease
	next := min(lease/renewals, notifyEvery)
	var due []*Ownership
	for _, o := range s.sorted() {
		o.report(now)
		o.tend(now)
		wait := o.left() - lease + lease/renewals + margin(lease)
		switch {
		case wait > 0:
			next = min(next, wait)
		case o.renewing.CompareAndSwap(false, true):
			due = append(due, o)
			next = min(next, lease/triesOf)
		default:
			next = min(next, lease/triesOf)
		}
	}
	if len(due) > 0 {
		s.working.Go(func() { s.renew(due) })
	}
	return next
}

// renew sends an empty batch write for each partition.
func (s *Store) renew(all []*Ownership) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Lease/4)
	defer cancel()
	turns := make([]*batchWrite, len(all))
	for i, o := range all {
		turns[i] = &batchWrite{o: o}
	}
	s.roundTrip(ctx, turns, nil)
	for i, t := range turns {
		if t.reply.Err == nil && t.reply.Answer == script.AnswerLapsed {
			_ = all[i].reacquire(ctx) // without an answer, it is tried again
		}
		_ = all[i].recall(ctx) // as above
		all[i].renewing.Store(false)
	}
}

// report gives the observer the state of the filter, once a minute.
func (o *Ownership) report(now time.Duration) {
	if o.s.opts.Observer.FilterState == nil || now-o.reported < notifyEvery {
		return
	}
	o.reported = now
	o.alongside(func() {
		st, reason := o.filter.Stats(), ""
		switch {
		case !o.loaded.Load():
			reason = "loading"
		case o.isShared():
			reason = "shared"
		}
		o.notifyState(st.Fill, st.Estimated, reason, nil)
	})
}

// tend folds sets and saves snapshots next to the work of the partition.
func (o *Ownership) tend(now time.Duration) {
	if !o.loaded.Load() || o.released.Load() ||
		!o.foldable() && now-o.tended < min(tendEvery, o.s.opts.slice()/4) {
		return
	}
	if !o.tending.CompareAndSwap(false, true) {
		return
	}
	o.tended = now
	o.alongside(func() {
		defer o.tending.Store(false)
		err := errors.Join(o.fold(o.ctx), o.save(o.ctx))
		if err != nil && o.ctx.Err() == nil {
			o.s.opts.Logger.Warn("owned: marks could not be folded, or a snapshot not saved",
				"source", o.part.Source, "partition", o.part.Number, "error", err)
		}
	})
}

// foldable reports whether there is a set that nobody writes to any more.
func (o *Ownership) foldable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.sets {
		if g.Newest > g.Folded+1 {
			return true
		}
	}
	return false
}

// sweep drops each entry whose lease ended a Hold ago. The attempts of its key are then forgotten,
// as in other stores.
func (s *Store) sweep(now time.Duration) {
	s.table.each(func(e *entry) bool {
		if !e.expired(now) {
			return true
		}
		if e.state == begun {
			e.settle()
		}
		return false
	})
}
