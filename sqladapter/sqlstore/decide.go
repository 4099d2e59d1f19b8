package sqlstore

import (
	"bytes"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// fenceTick is how many fences one millisecond of the database's clock is worth.
const fenceTick = 1024

// These functions alone decide the next state of a key: from its row, which the caller has locked,
// the request and the database's clock. They change the row in place and report whether it must be
// written. A key without a row is an empty one.

// decideClaim decides Store.Claim for one key. It does not change the row unless the answer is a
// new claim. So a caller may ask about a row that is not locked, and ask again under the lock when
// the answer is to write.
func decideClaim(r *claimRow, req *driver.ClaimRequest, now int64) (ans driver.Answer, write bool) {
	leaves := req.OnlyNew && r.attempt > 0
	switch {
	case r.absent(now):
		r.fence = max(r.fence, r.floor, now/1000*fenceTick-1)
		r.restart(now)
		return grantClaim(r, req, 1, now), true
	case r.fingerprint.Conflicts(req.Fingerprint):
		return driver.Answer{Outcome: driver.Mismatch, Record: r.view(now)}, false
	case r.terminal():
		return driver.Answer{Outcome: driver.Duplicate, Record: r.view(now)}, false
	case r.heldBy(req.Token, now):
		// This holds for a lapsed lease, too: it is still the same attempt, and the caller renews a
		// claim that an earlier send has won before using it.
		return driver.Answer{Outcome: driver.Acquired, Mine: true, Record: r.view(now)}, false
	case r.state == driver.StateInProgress && r.leaseEnd > now && !givesWay(r, req):
		return driver.Answer{Outcome: driver.InFlight, Record: r.view(now)}, false
	case r.uncertain(now) && (!req.TakeUncertain || leaves):
		return driver.Answer{Outcome: driver.Uncertain, Record: r.view(now)}, false
	case leaves:
		ans = driver.Answer{Outcome: driver.InFlight, Record: r.view(now)}
		ans.Record.Remaining = min(ans.Record.Remaining, 0)
		return ans, false
	}
	if r.uncertain(now) {
		r.asked = min(r.asked+1, maxAsked)
	}
	return grantClaim(r, req, r.attempt+1, now), true
}

// decideAsk is Store.ClaimUncertain. It is not counted as an attempt, so that the next attempt at
// the effect follows the uncertain one. The message's fingerprint and origin stay, too.
func decideAsk(r *claimRow, req *driver.ClaimRequest, now int64) (ans driver.Answer, write bool) {
	if !r.absent(now) && (r.terminal() || r.heldBy(req.Token, now)) {
		return decideClaim(r, req, now)
	}
	if r.absent(now) || !r.uncertain(now) {
		return driver.Answer{Outcome: driver.InFlight, Record: r.view(now)}, false
	}
	attempt, origin, label := r.attempt, r.origin, r.label
	if ans, write = decideClaim(r, req, now); write {
		r.attempt, r.origin, r.label = attempt, origin, label
		ans.Record = r.view(now)
	}
	return ans, write
}

// restart clears a row, except for its fence, which grows forever, and the floor of a Forget for as
// long as that is remembered.
func (r *claimRow) restart(now int64) {
	floor := r.floor
	if r.expires <= now {
		floor = 0
	}
	*r = claimRow{id: r.id, fence: r.fence, floor: floor}
}

// givesWay reports whether the request takes over a live claim: one of an older generation of the
// request's own partition, and never after MarkIrreversible.
func givesWay(r *claimRow, req *driver.ClaimRequest) bool {
	from, now := &r.origin, &req.Origin
	return req.TakeOverOlderGeneration && !r.has(flagIrreversible) &&
		now.Digest() != 0 && now.Digest() == from.Digest() && now.Partition == from.Partition &&
		from.Generation > 0 && from.Generation < now.Generation
}

// grantClaim makes the caller the owner. The irreversible flag and the steps of the key stay.
func grantClaim(r *claimRow, req *driver.ClaimRequest, attempt int, now int64) driver.Answer {
	r.state, r.token = driver.StateInProgress, req.Token
	r.attempt = attempt
	r.fence++
	r.origin, r.label = driver.Origin{}, "" // of the newest claim, never of an older one
	r.bind(req.Fingerprint, req.Origin, req.Label)
	r.lease(req.Lease, req.Hold, now)
	return driver.Answer{Outcome: driver.Acquired, Record: r.view(now)}
}

// lease sets how long the claim lasts from now, and that it is remembered for hold after that. For
// an irreversible key it never shortens how long the key is remembered.
func (r *claimRow) lease(lease, hold time.Duration, now int64) {
	r.leaseEnd = later(now, lease)
	until := later(r.leaseEnd, hold)
	if r.has(flagIrreversible) {
		until = max(until, r.expires)
	}
	r.expires = until
}

// decideRenew decides Store.Renew for one key.
func decideRenew(r *claimRow, c *driver.Renewal, now int64) (ans driver.Answer, write bool) {
	if !r.holds(c.Token, c.Fence, now) {
		return driver.Answer{Record: r.view(now)}, false
	}
	if c.Irreversible && !r.has(flagIrreversible) {
		r.set(flagIrreversible, true)
		r.since = now
	}
	if c.Steps != nil && len(c.Steps) >= len(r.steps) {
		r.steps = bytes.Clone(c.Steps)
	}
	r.lease(c.Lease, c.Hold, now)
	if r.has(flagIrreversible) {
		r.expires = max(r.expires, later(now, max(c.Window, 0)))
	}
	return driver.Answer{Held: true, Record: r.view(now)}, true
}

// decideForget decides Store.Forget for one key.
func decideForget(r *claimRow, hold time.Duration, now int64) (write bool, err error) {
	if !r.absent(now) && r.state == driver.StateInProgress && r.leaseEnd > now {
		return false, driver.ErrInFlight
	}
	if r.expires <= now { // nothing is known: neither a record nor what an earlier Forget left
		return false, nil
	}
	until := later(now, hold)
	if r.state == driver.StateAbsent {
		until = max(until, r.expires) // forgotten twice: the longer hold counts
	}
	r.floor = max(r.floor, r.fence)
	r.restart(now)
	r.expires = until
	return true, nil
}

// decideSweep decides about a row for the sweeper: it removes an expired row, and releases a claim
// whose lease has lapsed. It never touches a live lease.
func decideSweep(r *claimRow, now int64) (remove, write bool) {
	switch {
	case r.expires <= now:
		return true, false
	case r.state != driver.StateInProgress || r.leaseEnd > now:
		return false, false
	}
	// If the owner comes back it learns that it holds nothing.
	r.token = driver.Token{}
	r.state = driver.StateReleased
	if r.has(flagIrreversible) {
		r.state = driver.StateUncertain
	}
	return false, true
}
