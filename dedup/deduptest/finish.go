package deduptest

import (
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

func checkFinishOwner(c *check) {
	for _, state := range c.ends() {
		o := c.acquire(newID(), long, long)
		a := o.mustFinish(o.change(state))
		c.wantState("the answer of Finish", a.Record, state)
		c.wantClaim("the answer of Finish", a.Record, o.attempt, o.fence)
		rec := c.lookup(o.id)
		c.wantState("after Finish", rec, state)
		c.wantClaim("after Finish", rec, o.attempt, o.fence)
		c.wantRemaining("after Finish", rec, long)
	}
}

// checkFinishAgain loses the reply of each end, and sends it again.
func checkFinishAgain(c *check) {
	for _, state := range c.ends() {
		o := c.acquire(newID(), long, long)
		change := o.change(state)
		if state != driver.StateReleased {
			change.Result = []byte("kept")
		}
		o.mustFinish(change)
		before := c.lookup(o.id)
		for range 2 {
			a := o.mustFinish(change)
			c.wantState("the same Finish sent again", a.Record, state)
		}
		c.wantUnchanged("the same Finish sent again", before, c.lookup(o.id))
	}

	// A release sent again must not release the next owner.
	o := c.acquire(newID(), long, long)
	release := o.change(driver.StateReleased)
	o.mustFinish(release)
	next := c.acquire(o.id, long, long)
	before := c.lookup(o.id)
	c.wantEnd("a release sent again under the next owner", o.finish(release), false, false)
	c.wantUnchanged("a release sent again under the next owner", before, c.lookup(o.id))
	next.mustFinish(next.change(driver.StateSucceeded))

	// An attempt has one end.
	o = c.ended(newID(), driver.StateSucceeded, []byte("first"))
	before = c.lookup(o.id)
	for _, state := range c.keeps(driver.StateFailed, driver.StateReleased) {
		c.wantEnd("another end for one's own success", o.finish(o.change(state)), false, false)
	}
	c.wantUnchanged("another end for one's own success", before, c.lookup(o.id))
}

// checkUnknownWith ends a claim with a Finish.With of a type that no store knows.
func checkUnknownWith(c *check) {
	o := c.acquire(newID(), long, long)
	before := c.lookup(o.id)
	change := o.change(driver.StateSucceeded)
	change.With = func() {}
	var input *driver.InputError
	if a := c.finishes(change)[0]; !errors.As(a.Err, &input) || a.Held || a.Written {
		c.Errorf("a Change with an unknown With was answered %s", describe(a))
	}
	c.wantUnchanged("a Change with an unknown With", before, c.lookup(o.id))
	o.mustFinish(o.change(driver.StateSucceeded))
}

// checkLateOwner lets an owner come back when the key is somebody else's.
func checkLateOwner(c *check) {
	for _, now := range c.keeps(driver.StateInProgress, driver.StateSucceeded, driver.StateFailed,
		driver.StateReleased) {
		id := newID()
		late := c.lapsed(id)
		next := c.acquire(id, long, long)
		if now != driver.StateInProgress {
			change := next.change(now)
			if now != driver.StateReleased {
				change.Result = []byte("theirs")
			}
			next.mustFinish(change)
		}
		before := c.lookup(id)
		c.wantState("under the next owner", before, now)
		for _, state := range c.ends() {
			change := late.change(state)
			change.Result = []byte("mine")
			a := late.finish(change)
			c.wantEnd("a late owner's "+state.String()+" of a key that is "+now.String(),
				a, false, false)
			c.wantUnchanged("what a late owner is shown", before, a.Record)
		}
		if a := late.renew(long); a.Held {
			c.Errorf("a late owner renews a key that is %v", now)
		}
		c.wantUnchanged("after a late owner", before, c.lookup(id))
		if now == driver.StateInProgress {
			next.mustFinish(next.change(driver.StateSucceeded))
		}
	}
}

// checkOtherClaim simulates a network that delivers a claim a second time, long after its owner was
// overtaken. The same token then owns the key again, but the owner knows only its first claim.
func checkOtherClaim(c *check) {
	for _, state := range c.ends() {
		id := newID()
		first := c.lapsed(id)
		next := c.acquire(id, long, long)
		next.mustFinish(next.change(driver.StateReleased))
		again := &owner{c: c, id: id, token: first.token}
		again.mustClaim(again.request())
		before := c.lookup(id)
		if a := first.renew(long); a.Held {
			c.Error("an owner renews a claim that a late copy of its request has made")
		}
		c.wantUnchanged("after that", before, c.lookup(id))
		a := first.finish(first.change(state))
		c.wantEnd("an owner ends as "+state.String()+" what a late copy of its request has claimed",
			a, false, false)
		c.wantUnchanged("after that", before, c.lookup(id))
		if a := again.renew(long); !a.Held {
			c.Errorf("Renew of the newest claim: %s", describe(a))
		}
		again.mustFinish(again.change(state))
	}
}

func checkStranger(c *check) {
	for _, state := range c.ends() {
		o := c.stranger(newID())
		a := o.finish(o.change(state))
		c.wantEnd("Finish of a key that was never claimed", a, false, false)
		c.wantState("Finish of a key that was never claimed", c.lookup(o.id), driver.StateAbsent)
	}
	gone := c.acquire(newID(), c.h.Lease, c.h.Lease)
	c.pass(2 * c.h.Lease)
	for _, state := range c.ends() {
		c.wantEnd("Finish of a claim past its hold", gone.finish(gone.change(state)), false, false)
	}
	c.wantState("Finish of a claim past its hold", c.lookup(gone.id), driver.StateAbsent)
}
