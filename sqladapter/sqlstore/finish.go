package sqlstore

import (
	"bytes"
	"fmt"
	"math"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// decideFinish decides Store.Finish for one key.
func decideFinish(r *claimRow, c *driver.Finish, now int64) (ans driver.Answer, write bool) {
	switch {
	case r.holds(c.Token, c.Fence, now):
		endClaim(r, c, now)
		return driver.Answer{Held: true, Written: true, Record: r.view(now)}, true
	case !r.absent(now) && r.state == reach(r, c) && r.token == c.Token:
		// The change was sent before: give the same answer as the first time. So an owner whose
		// late write was recorded is told again that its lease was lost.
		return driver.Answer{Held: !r.has(flagLate), Written: true, Record: r.view(now)}, false
	case c.EffectApplied && mayLand(r, c, now):
		return landClaim(r, c, now), true
	}
	return driver.Answer{Record: r.view(now)}, false
}

// reach returns the state in which c leaves the row: a release after the irreversible part may have
// begun makes it uncertain.
func reach(r *claimRow, c *driver.Finish) driver.State {
	if c.State == driver.StateReleased && r.has(flagIrreversible) && !c.NotStarted {
		return driver.StateUncertain
	}
	return c.State
}

// mayLand reports whether a caller that does not hold the key may still record an effect that has
// happened. The floor refuses owners from before a Forget. It stays when the key is claimed again,
// because the old owner may wake only then.
func mayLand(r *claimRow, c *driver.Finish, now int64) bool {
	if r.expires <= now {
		return true
	}
	return !r.terminal() && (c.Fence == 0 || c.Fence > uint64(r.floor)) // never negative
}

// landClaim records the effect of a caller that does not, or no longer, hold the key.
func landClaim(r *claimRow, c *driver.Finish, now int64) driver.Answer {
	if r.expires <= now {
		r.restart(now)
	}
	r.attempt = max(r.attempt, c.Attempt)
	r.fence = max(r.fence, int64(c.Fence)) // checkFinish has refused what does not fit
	r.token = c.Token
	endClaim(r, c, now)
	r.set(flagLate, true)
	return driver.Answer{Written: true, Record: r.view(now)}
}

// endClaim writes c into a row that already has the token of c.
func endClaim(r *claimRow, c *driver.Finish, now int64) {
	r.state = reach(r, c)
	r.bind(c.Fingerprint, c.Origin, c.Label)
	r.set(flagLate, false)
	r.set(flagIrreversible, r.state == driver.StateUncertain)
	r.leaseEnd = min(r.leaseEnd, now)
	if c.NotAttempted {
		r.attempt = max(r.attempt-1, 0)
	}
	switch r.state {
	case driver.StateUncertain:
		r.expires = max(r.expires, later(now, max(c.Hold, c.Window)))
		return
	case driver.StateReleased:
		r.asked, r.since = 0, 0
		r.expires = later(now, c.Hold)
		return
	}
	r.asked, r.steps = 0, nil
	r.end(c)
	r.since, r.expires = now, later(now, c.Window)
}

// end keeps the result of an attempt that has succeeded or failed.
func (r *claimRow) end(c *driver.Finish) {
	r.result = bytes.Clone(c.Result)
	r.set(flagNoResult, c.NoResult)
	r.set(flagEmpty, c.Result != nil && len(c.Result) == 0)
}

// checkClaim refuses a request that the table cannot hold, or that breaks the contract.
func (s *Store) checkClaim(req *driver.ClaimRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	if req.ResultLimit > s.maxResult {
		return dialect.InputError("ResultLimit",
			fmt.Sprintf("is %d bytes; at most %d are kept (Options.MaxResult)", req.ResultLimit,
				s.maxResult))
	}
	return nil
}

func (s *Store) checkFinish(c *driver.Finish) error {
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case c.With != nil:
		return dialect.InputError("Completion.With",
			fmt.Sprintf("is a %T, of which this store knows nothing", c.With))
	case c.Fence > math.MaxInt64:
		return dialect.InputError("Fence",
			fmt.Sprintf("is %d; at most %d fits", c.Fence, int64(math.MaxInt64)))
	case c.Attempt < 0 || c.Attempt > math.MaxInt32:
		return dialect.InputError("Attempt",
			fmt.Sprintf("is %d; from 0 to %d fits", c.Attempt, math.MaxInt32))
	case len(c.Result) > s.maxResult:
		return dialect.InputError("Result",
			fmt.Sprintf("has %d bytes; at most %d are kept", len(c.Result), s.maxResult))
	}
	return nil
}
