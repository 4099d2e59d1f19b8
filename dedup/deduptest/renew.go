package deduptest

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

func checkRenewExtends(c *check) {
	id := newID()
	o := c.acquire(id, c.h.Lease, long)
	a := o.renew(long)
	if !a.Held {
		c.Fatalf("Renew by the owner: %s", describe(a))
	}
	c.wantClaim("Renew by the owner", a.Record, o.attempt, o.fence)
	c.wantRemaining("Renew by the owner", a.Record, long)
	c.pass(c.h.Lease)
	c.wantOutcome("a claim past the first lease", c.stranger(id).claim(), driver.InFlight)
	rec := c.lookup(id)
	c.wantClaim("past the first lease", rec, o.attempt, o.fence)
	if rec.Remaining <= long/2 {
		c.Errorf("Renew for %v left %v", long, rec.Remaining)
	}

	// A renewal counts its lease from now and adds nothing to the old lease, so it may also shorten
	// a claim.
	began := time.Now()
	if a := o.renew(c.h.Lease); !a.Held {
		c.Fatalf("Renew for a shorter lease: %s", describe(a))
	}
	rec = c.lookup(id)
	if time.Since(began) >= c.h.Lease { // a slow server: the lease may be over
		rec.Remaining = max(rec.Remaining, 1)
	}
	c.wantRemaining("Renew for a shorter lease", rec, c.h.Lease)
	c.pass(c.h.Lease)
	next := c.acquire(id, long, long)
	if next.attempt != 2 || next.fence <= o.fence {
		c.Errorf("takeover after renewals: attempt %d, fence %d after %d", next.attempt,
			next.fence, o.fence)
	}
}

func checkRenewNeverCreates(c *check) {
	refused := func(what string, o *owner) {
		c.Helper()
		before := c.lookup(o.id)
		if a := o.renew(long); a.Held {
			c.Errorf("Renew %s: %s", what, describe(a))
		}
		c.wantUnchanged("Renew "+what, before, c.lookup(o.id))
	}
	refused("of a key that was never claimed", c.stranger(newID()))

	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed, driver.StateReleased) {
		refused("of a key its owner ended as "+state.String(), c.ended(newID(), state, nil))
	}

	gone := c.acquire(newID(), c.h.Lease, c.h.Lease)
	c.pass(2 * c.h.Lease)
	refused("of a claim past its hold", gone)

	id := newID()
	late := c.lapsed(id)
	c.acquire(id, long, long)
	refused("by an owner that was taken over", late)
	refused("by a stranger", c.stranger(id))

	forgotten := c.lapsed(newID())
	c.forget(forgotten.id, long)
	refused("of a forgotten claim", forgotten)
}

func checkOwnLapsed(c *check) {
	id := newID()
	o := c.lapsed(id)
	if a := o.renew(long); !a.Held {
		c.Fatalf("Renew of one's own lapsed claim: %s", describe(a))
	}
	c.wantClaim("Renew of one's own lapsed claim", c.lookup(id), o.attempt, o.fence)
	c.wantOutcome("a claim after that", c.stranger(id).claim(), driver.InFlight)

	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed, driver.StateReleased) {
		o := c.lapsed(newID())
		o.mustFinish(o.change(state))
		rec := c.lookup(o.id)
		c.wantState("a lapsed claim ended by its owner", rec, state)
		c.wantClaim("a lapsed claim ended by its owner", rec, o.attempt, o.fence)
	}
}
