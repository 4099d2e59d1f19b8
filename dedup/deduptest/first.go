package deduptest

import (
	"github.com/onceward/onceward/dedup/driver"
)

// first returns a claim that wants the key only if it has no attempt yet.
func (o *owner) first() driver.ClaimRequest {
	req := o.request()
	req.OnlyNew = true
	return req
}

// checkFirst claims keys that have no attempt, or none that is remembered.
func checkFirst(c *check) {
	forgotten := c.ended(newID(), driver.StateSucceeded, nil)
	c.forget(forgotten.id, long)
	unused := c.acquire(newID(), long, long)
	unused.mustFinish(unused.unused())
	expired := c.acquire(newID(), long, long)
	change := expired.change(driver.StateReleased)
	change.Hold = c.h.Lease
	expired.mustFinish(change)
	c.pass(c.h.Lease)
	for what, id := range map[string]driver.ID{
		"absent": newID(), "forgotten": forgotten.id, "never begun": unused.id,
		"forgotten by time": expired.id,
	} {
		o := c.stranger(id)
		if a := o.mustClaim(o.first()); a.Mine || o.attempt != 1 {
			c.Errorf("a first claim of a key that is %s: %s", what, describe(a))
		}
		c.wantClaim("a first claim", c.lookup(id), 1, o.fence)
		for range 2 {
			if a := o.send(o.first()); a.Outcome != driver.Acquired || !a.Mine {
				c.Errorf("a first claim, sent again: %s", describe(a))
			}
		}
		o.mustFinish(o.change(driver.StateSucceeded))
	}
}

// leftTo insists that a first claim leaves the key as it is, although the key could be claimed, and
// that the next claim counts on from there.
func (c *check) leftTo(what string, id driver.ID, bend func(*driver.ClaimRequest)) {
	c.Helper()
	before := c.lookup(id)
	for range 3 {
		req := c.stranger(id).first()
		bend(&req)
		a := c.learnt("Claim", c.claims(req)[0])
		c.wantOutcome("a first claim of a key that is "+what, a, driver.InFlight)
		if a.Record.Remaining > 0 {
			c.Errorf("a first claim of a key that is %s sees it in flight for %v",
				what, a.Record.Remaining)
		}
		c.wantUnchanged("the answer to a first claim of a key that is "+what, before, a.Record)
		c.wantUnchanged("after a first claim of a key that is "+what, before, c.lookup(id))
	}
	next := c.stranger(id)
	req := next.request()
	bend(&req)
	if a := next.mustClaim(req); a.Mine || next.attempt != before.Attempt+1 ||
		next.fence <= before.Fence {
		c.Errorf("the claim after first claims of a key that is %s, at attempt %d: %s", what,
			before.Attempt, describe(a))
	}
}

// checkFirstLeaves asks for keys that have an attempt, and that another claim could get.
func checkFirstLeaves(c *check) {
	same := func(*driver.ClaimRequest) {}
	released := c.ended(newID(), driver.StateReleased, nil)
	c.leftTo("released", released.id, same)
	lapsed := c.lapsed(newID())
	c.leftTo("lapsed", lapsed.id, same)
	if a := lapsed.renew(long); a.Held {
		c.Error("an owner renews that was taken over after a first claim")
	}
	unused := c.ended(newID(), driver.StateReleased, nil)
	again := c.acquire(unused.id, long, long)
	again.mustFinish(again.unused())
	c.leftTo("never begun the second time", unused.id, same)

	old := c.consumed(newID(), older)
	c.leftTo("an older generation's", old.id, func(req *driver.ClaimRequest) {
		req.Origin, req.TakeOverOlderGeneration = newer, true
	})
	old = c.consumed(newID(), older)
	req := c.stranger(old.id).first()
	req.Origin, req.TakeOverOlderGeneration = newer, true
	c.wantOutcome("a first claim of a newer generation", c.claims(req)[0], driver.InFlight)
	if a := old.renew(long); !a.Held {
		c.Errorf("a live claim that a first claim has left: %s", describe(a))
	}
}

// checkFirstStates asks for keys that no claim could get: the answers are the same as for any
// claim.
func checkFirstStates(c *check) {
	meets := func(what string, id driver.ID, want driver.Outcome,
		bend func(*driver.ClaimRequest)) driver.Answer {
		c.Helper()
		before := c.lookup(id)
		req := c.stranger(id).first()
		bend(&req)
		a := c.learnt("Claim", c.claims(req)[0])
		c.wantOutcome("a first claim of a key that is "+what, a, want)
		if want != driver.Duplicate {
			c.wantUnchanged("a first claim of a key that is "+what, before, a.Record)
		}
		c.wantUnchanged("after a first claim of a key that is "+what, before, c.lookup(id))
		return a
	}
	same := func(*driver.ClaimRequest) {}
	live := c.acquire(newID(), long, long)
	c.wantRemaining("a first claim of a live one",
		meets("in flight", live.id, driver.InFlight, same).Record, long)
	lapsed := c.lapsed(newID())
	meets("its own", lapsed.id, driver.Acquired, func(req *driver.ClaimRequest) {
		req.Token = lapsed.token
	})
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		meets(state.String(), c.ended(newID(), state, nil).id, driver.Duplicate, same)
	}
	for crash, way := range ways {
		for _, take := range []bool{false, true} {
			meets("uncertain "+way, c.uncertain(newID(), crash).id, driver.Uncertain,
				func(req *driver.ClaimRequest) { req.TakeUncertain = take })
		}
	}
	if c.h.DoneOnly {
		return
	}
	o := c.stranger(newID())
	req := o.request()
	req.Fingerprint = newFingerprint(1)
	o.mustClaim(req)
	o.mustFinish(o.change(driver.StateReleased))
	meets("another payload's", o.id, driver.Mismatch, func(req *driver.ClaimRequest) {
		req.Fingerprint = newFingerprint(1)
	})
}

// checkOneFirst lets all workers ask at once.
func checkOneFirst(c *check) {
	ids := make([]driver.ID, 32)
	for i := range ids {
		ids[i] = newID()
	}
	c.wantOneWinner(ids, 1, func(req *driver.ClaimRequest) { req.OnlyNew = true })
}
