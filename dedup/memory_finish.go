package dedup

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Finish implements [driver.Store].
func (s *memoryStore) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return memoryBatch(ctx, s, changes, s.finish)
}

func (s *memoryStore) finish(c *driver.Finish, now time.Duration) driver.Answer {
	if err := memoryCheckEnd(c); err != nil {
		return driver.Answer{Err: err}
	}
	rec := s.find(c.ID, now)
	switch {
	case rec.holds(c.Token, c.Fence):
		s.end(rec, c, now)
		return driver.Answer{Held: true, Written: true, Record: rec.view(now)}
	case rec != nil && rec.state == rec.reach(c) && rec.token == c.Token:
		// A repeated send gets the answer that was lost. For example, an owner whose late write was
		// recorded is told once more that it had lost the lease.
		return driver.Answer{Held: !rec.late, Written: true, Record: rec.view(now)}
	case c.EffectApplied && rec.mayLand(c.Fence):
		return s.land(rec, c, now)
	}
	return driver.Answer{Record: rec.view(now)}
}

// reach returns the state in which c leaves the record: a release when the irreversible part may
// have begun makes it uncertain.
func (r *memoryRecord) reach(c *driver.Finish) driver.State {
	if c.State == driver.StateReleased && r.danger && !c.NotStarted {
		return driver.StateUncertain
	}
	return c.State
}

// mayLand reports whether a caller without a claim may still record an effect that has
// happened. A floor refuses whoever owned the key before a Forget. The floor stays when the key is
// claimed again, because the old owner may wake only then.
func (r *memoryRecord) mayLand(fence uint64) bool {
	if r == nil {
		return true
	}
	return !terminal(r.state) && (fence == 0 || fence > r.floor)
}

// land records an effect for a caller that does not hold the key, or no longer holds it.
func (s *memoryStore) land(rec *memoryRecord, c *driver.Finish, now time.Duration) driver.Answer {
	if rec == nil {
		if err := s.checkCapacity(); err != nil {
			return driver.Answer{Err: err}
		}
		if rec = s.add(c.ID, now); rec == nil {
			return driver.Answer{Err: driver.ErrStoreFull}
		}
	}
	rec.attempt = max(rec.attempt, c.Attempt)
	rec.fence = max(rec.fence, c.Fence)
	s.fence = max(s.fence, rec.fence)
	rec.token = c.Token
	s.end(rec, c, now)
	rec.late = true
	return driver.Answer{Written: true, Record: rec.view(now)}
}

// end writes c into rec, whose token is already that of c.
func (s *memoryStore) end(rec *memoryRecord, c *driver.Finish, now time.Duration) {
	rec.state, rec.late = rec.reach(c), false
	rec.bind(c.Fingerprint, c.Origin, c.Label)
	rec.danger = rec.state == driver.StateUncertain
	if c.NotAttempted {
		rec.attempt = max(rec.attempt-1, 0)
	}
	switch rec.state {
	case driver.StateUncertain:
		rec.ended = now
		s.schedule(rec, max(rec.expires, memoryAdd(now, max(c.Hold, c.Window))))
		return
	case driver.StateReleased:
		s.schedule(rec, memoryAdd(now, c.Hold))
		return
	}
	rec.steps = nil
	rec.result, rec.noResult = bytes.Clone(c.Result), c.NoResult
	rec.ended = now
	s.schedule(rec, memoryAdd(now, c.Window))
}

func memoryCheckEnd(c *driver.Finish) error {
	if c.With != nil {
		return &InputError{Field: "Completion.With",
			Reason: fmt.Sprintf("is a %T, of which this store knows nothing", c.With)}
	}
	return c.Check()
}

// Lookup implements [driver.Store].
func (s *memoryStore) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return memoryBatch(ctx, s, ids, func(id *driver.ID, now time.Duration) driver.Answer {
		return driver.Answer{Record: s.find(*id, now).view(now)}
	})
}

// Forget implements [driver.Store].
func (s *memoryStore) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	answers := memoryBatch(ctx, s, ids, func(id *driver.ID, now time.Duration) driver.Answer {
		if hold < 0 {
			return driver.Answer{Err: &InputError{Field: "hold", Reason: "is negative"}}
		}
		return driver.Answer{Err: s.forget(*id, hold, now)}
	})
	errs := make([]error, len(answers))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	s.Recycle(answers)
	return errs
}

func (s *memoryStore) forget(id driver.ID, hold, now time.Duration) error {
	rec := s.find(id, now)
	if rec != nil && rec.state == driver.StateInProgress && rec.leaseEnd > now {
		return ErrInFlight
	}
	s.forgets++ // also for an absent key: a cache may still know it
	if rec == nil {
		return nil
	}
	until := memoryAdd(now, hold)
	if rec.state == driver.StateAbsent {
		until = max(until, rec.expires) // forgotten twice: the longer hold counts
	}
	// The place in the heap stays; everything else but the floor is gone.
	*rec = memoryRecord{id: id, slot: rec.slot, fence: rec.fence, floor: max(rec.floor, rec.fence)}
	s.schedule(rec, until)
	return nil
}
