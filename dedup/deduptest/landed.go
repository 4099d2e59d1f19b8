package deduptest

import "github.com/onceward/onceward/dedup/driver"

// wantApplied insists on a record made by a caller who held no claim.
func (c *check) wantApplied(what string, a driver.Answer, id driver.ID, result string) {
	c.Helper()
	c.wantEnd(what, a, false, true)
	rec := c.lookup(id)
	c.wantState(what, rec, driver.StateSucceeded)
	c.wantResult(what, rec, []byte(result))
	c.wantRemaining(what, rec, long)
	c.wantOutcome(what+", then a claim", c.stranger(id).claim(), driver.Duplicate)
}

func checkAppliedAbsent(c *check) {
	o := c.acquire(newID(), c.h.Lease, c.h.Lease)
	c.pass(2 * c.h.Lease)
	c.wantState("a claim past its hold", c.lookup(o.id), driver.StateAbsent)
	change := o.landed("landed")
	change.Attempt = 3
	c.wantApplied("a landed effect of an absent key", o.finish(change), o.id, "landed")
	if rec := c.lookup(o.id); rec.Attempt != 3 && !c.h.DoneOnly {
		c.Errorf("a landed effect of an absent key: want the attempt of its change, 3, got %d",
			rec.Attempt)
	}

	// Under the owner's own live claim, such a change is an ordinary end.
	o = c.acquire(newID(), long, long)
	c.wantEnd("a landed effect of a live claim", o.finish(o.landed("x")), true, true)
}

func checkAppliedUnfinished(c *check) {
	id := newID()
	late := c.lapsed(id)
	next := c.acquire(id, long, long)
	change := late.landed("late")
	c.wantApplied("a landed effect under another's claim", late.finish(change), id, "late")
	before := c.lookup(id)

	a := late.finish(change)
	if !a.Written {
		c.Errorf("a landed effect reported again: %s", describe(a))
	}
	for _, state := range c.ends() {
		end := next.change(state)
		end.Result = []byte("next")
		a := next.finish(end)
		c.wantEnd("the end of an owner that was overtaken by a landed effect", a, false, false)
		c.wantState("the end of an owner that was overtaken by a landed effect", a.Record,
			driver.StateSucceeded)
	}
	if a := next.renew(long); a.Held {
		c.Error("an owner overtaken by a landed effect still renews")
	}
	c.wantUnchanged("after the overtaken owner", before, c.lookup(id))

	id = newID()
	late = c.lapsed(id)
	next = c.acquire(id, long, long)
	next.mustFinish(next.change(driver.StateReleased))
	c.wantApplied("a landed effect of a key the next owner released",
		late.finish(late.landed("late")), id, "late")
}

func checkAppliedFinished(c *check) {
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		id := newID()
		late := c.lapsed(id)
		c.ended(id, state, []byte("first"))
		before := c.lookup(id)
		a := late.finish(late.landed("second"))
		c.wantEnd("a landed effect of a key that is "+state.String(), a, false, false)
		c.wantState("what it is shown", a.Record, state)
		c.wantResult("what it is shown", a.Record, []byte("first"))
		c.wantUnchanged("after a landed effect", before, c.lookup(id))
	}
}

// checkAppliedWithoutClaim marks keys that nobody claimed, as receivers of webhooks do.
func checkAppliedWithoutClaim(c *check) {
	o := c.stranger(newID())
	change := o.landed("first")
	change.Attempt = 1
	c.wantApplied("a mark", o.finish(change), o.id, "first")
	if a := o.finish(change); !a.Written {
		c.Errorf("a mark sent again: %s", describe(a))
	}
	second := c.stranger(o.id)
	a := second.finish(second.landed("second"))
	c.wantEnd("a second mark", a, false, false)
	c.wantResult("a second mark", a.Record, []byte("first"))

	// A mark has fence zero, which a Forget does not refuse: it also marks a forgotten key.
	forgotten := c.ended(newID(), driver.StateSucceeded, []byte("first"))
	c.forget(forgotten.id, long)
	o = c.stranger(forgotten.id)
	c.wantApplied("a mark of a forgotten key", o.finish(o.landed("again")), o.id, "again")
}
