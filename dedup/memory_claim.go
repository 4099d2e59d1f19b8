package dedup

import (
	"bytes"
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// memoryTick is how many fences one millisecond of the clock is worth.
const memoryTick = 1024

// Claim implements [driver.Store].
func (s *memoryStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return memoryBatch(ctx, s, reqs, s.claim)
}

func (s *memoryStore) claim(req *driver.ClaimRequest, now time.Duration) driver.Answer {
	if err := req.Check(); err != nil {
		return driver.Answer{Err: err}
	}
	if err := s.checkCapacity(); err != nil {
		return driver.Answer{Err: err}
	}
	rec := s.find(req.ID, now)
	if rec == nil || rec.state == driver.StateAbsent {
		return s.claimAbsent(req, rec, now)
	}
	switch {
	case rec.fingerprint.Conflicts(req.Fingerprint):
		return driver.Answer{Outcome: Mismatch, Record: rec.view(now)}
	case terminal(rec.state):
		return driver.Answer{Outcome: Duplicate, Record: rec.view(now)}
	case rec.heldBy(req.Token):
		// This holds for a lapsed lease, too: it is still the same attempt, and the caller renews a
		// claim that an earlier send won before using it.
		return driver.Answer{Outcome: Acquired, Mine: true, Record: rec.view(now)}
	case rec.state == driver.StateInProgress && rec.leaseEnd > now && !rec.givesWay(req, now):
		return driver.Answer{Outcome: InFlight, Record: rec.view(now)}
	case rec.uncertain(now) && (!req.TakeUncertain || leaves(req, rec.attempt)):
		return driver.Answer{Outcome: Uncertain, Record: rec.view(now)}
	case leaves(req, rec.attempt):
		ans := driver.Answer{Outcome: InFlight, Record: rec.view(now)}
		ans.Record.Remaining = min(ans.Record.Remaining, 0)
		return ans
	}
	return s.grant(rec, req, rec.attempt+1, rec.fence+1, now)
}

// givesWay reports whether the request takes the claim over although it is live.
func (r *memoryRecord) givesWay(req *driver.ClaimRequest, now time.Duration) bool {
	rec := r.view(now)
	return takesOver(req, &rec)
}

// claimAbsent claims a key that is unknown (rec is nil) or forgotten.
func (s *memoryStore) claimAbsent(req *driver.ClaimRequest, rec *memoryRecord,
	now time.Duration) driver.Answer {
	if rec == nil {
		if rec = s.add(req.ID, now); rec == nil {
			return driver.Answer{Err: driver.ErrStoreFull}
		}
	}
	return s.grant(rec, req, 1, s.freshFence(now), now)
}

// grant makes the caller the owner of rec. The key keeps its danger and its steps.
func (s *memoryStore) grant(rec *memoryRecord, req *driver.ClaimRequest, attempt int, fence uint64,
	now time.Duration) driver.Answer {
	rec.state, rec.token = driver.StateInProgress, req.Token
	rec.attempt, rec.fence = attempt, fence
	s.fence = max(s.fence, fence)
	if rec.danger {
		rec.asked++
	}
	rec.origin, rec.label = driver.Origin{}, "" // of the newest claim, never of an older one
	rec.bind(req.Fingerprint, req.Origin, req.Label)
	s.lease(rec, req.Lease, req.Hold, now)
	return driver.Answer{Outcome: Acquired, Record: rec.view(now)}
}

// lease makes the claim last from now, and be remembered for hold after that. A dangerous key
// is never remembered for less than it was before.
func (s *memoryStore) lease(rec *memoryRecord, lease, hold, now time.Duration) {
	rec.leaseEnd = memoryAdd(now, lease)
	until := memoryAdd(rec.leaseEnd, hold)
	if rec.danger {
		until = max(until, rec.expires)
	}
	s.schedule(rec, until)
}

// freshFence returns a fence that is larger than every fence of this store, so a key that was
// forgotten or has expired still sees its fence grow. It also starts from the clock, so that it
// exceeds the fences of an earlier process: this store does not know them, but the systems that the
// effects touched may know them.
func (s *memoryStore) freshFence(now time.Duration) uint64 {
	millis := s.start.UnixMilli() + now.Milliseconds()
	return max(s.fence+1, uint64(max(millis, 0))*memoryTick)
}

// Renew implements [driver.Store].
func (s *memoryStore) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return memoryBatch(ctx, s, renewals, s.renew)
}

func (s *memoryStore) renew(c *driver.Renewal, now time.Duration) driver.Answer {
	if err := c.Check(); err != nil {
		return driver.Answer{Err: err}
	}
	rec := s.find(c.ID, now)
	if !rec.holds(c.Token, c.Fence) {
		return driver.Answer{Record: rec.view(now)}
	}
	if c.Irreversible && !rec.danger {
		rec.danger, rec.since, rec.asked = true, now, 0
	}
	if c.Steps != nil && len(c.Steps) >= len(rec.steps) {
		rec.steps = bytes.Clone(c.Steps)
	}
	s.lease(rec, c.Lease, c.Hold, now)
	if rec.danger {
		s.schedule(rec, max(rec.expires, memoryAdd(now, max(c.Window, 0))))
	}
	return driver.Answer{Held: true, Record: rec.view(now)}
}
