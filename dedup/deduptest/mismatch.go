package deduptest

import (
	"maps"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
)

// bound leaves a fresh key in the given state, bound to f. StateUncertain stands for a lapsed
// claim, because no store reaches that state by itself.
func (c *check) bound(state driver.State, f driver.Fingerprint) driver.ID {
	c.Helper()
	o := c.stranger(newID())
	req := o.request()
	req.Fingerprint = f
	if state == driver.StateUncertain {
		req.Lease = c.h.Lease
	}
	o.mustClaim(req)
	switch state {
	case driver.StateUncertain:
		c.pass(c.h.Lease)
	case driver.StateInProgress:
	default:
		change := o.change(state)
		change.Fingerprint = f
		o.mustFinish(change)
	}
	return o.id
}

// onRightPayload is what a claim with the right payload finds in each state of bound.
var onRightPayload = map[driver.State]driver.Outcome{
	driver.StateInProgress: driver.InFlight,
	driver.StateUncertain:  driver.Acquired,
	driver.StateSucceeded:  driver.Duplicate,
	driver.StateFailed:     driver.Duplicate,
	driver.StateReleased:   driver.Acquired,
}

func (c *check) claimWith(id driver.ID, f driver.Fingerprint) driver.Answer {
	c.Helper()
	o := c.stranger(id)
	req := o.request()
	req.Fingerprint = f
	return o.send(req)
}

func checkMismatch(c *check) {
	for _, state := range c.keeps(slices.Collect(maps.Keys(onRightPayload))...) {
		f, right := newFingerprint(1), onRightPayload[state]
		id := c.bound(state, f)
		before := c.lookup(id)
		for range 2 {
			a := c.claimWith(id, newFingerprint(1))
			c.wantOutcome("another payload", a, driver.Mismatch)
			c.wantUnchanged("what another payload is shown", before, a.Record)
			if a.Record.Fingerprint != f {
				c.Error("a mismatch does not show the fingerprint the key is bound to")
			}
		}
		c.wantUnchanged("another payload", before, c.lookup(id))
		c.wantOutcome("the right payload", c.claimWith(id, f), right)
	}
}

// checkIncomparable claims without a fingerprint, claims with a fingerprint of another version, and
// claims keys that were bound without one. It expects no Mismatch.
func checkIncomparable(c *check) {
	none := driver.Fingerprint{}
	for _, state := range c.keeps(slices.Collect(maps.Keys(onRightPayload))...) {
		right := onRightPayload[state]
		c.wantOutcome("a claim without fingerprint",
			c.claimWith(c.bound(state, newFingerprint(1)), none), right)
		c.wantOutcome("a fingerprint of another version",
			c.claimWith(c.bound(state, newFingerprint(1)), newFingerprint(2)), right)
		c.wantOutcome("a fingerprint where none was bound",
			c.claimWith(c.bound(state, none), newFingerprint(1)), right)
	}
}
