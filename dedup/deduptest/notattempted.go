package deduptest

import (
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

// unused returns the change of an attempt that never began.
func (o *owner) unused() driver.Finish {
	change := o.change(driver.StateReleased)
	change.NotAttempted = true
	return change
}

// wantUncounted insists that rec is what a claim of o leaves whose attempt never began.
func (c *check) wantUncounted(what string, rec driver.Record, o *owner) {
	c.Helper()
	c.wantState(what, rec, driver.StateReleased)
	c.wantClaim(what, rec, o.attempt-1, o.fence)
	c.wantRemaining(what, rec, long)
}

// checkNotAttempted gives claims back unstarted, between attempts that were started.
func checkNotAttempted(c *check) {
	id, steps := newID(), []byte("charge")
	fence := uint64(0)
	for started := range 3 {
		for range 2 {
			o := c.acquire(id, long, long)
			if o.attempt != started+1 || o.fence <= fence {
				c.Errorf("a claim after %d attempts and others that were never begun: want attempt %d and a fence above %d, got %d and %d",
					started, started+1, fence, o.attempt, o.fence)
			}
			fence = o.fence
			a := o.mustFinish(o.unused())
			c.wantUncounted("the answer to an attempt that was never begun", a.Record, o)
			c.wantUncounted("an attempt that was never begun", c.lookup(id), o)
		}
		o := c.acquire(id, long, long)
		o.mustNote(steps)
		o.mustFinish(o.change(driver.StateReleased))
		fence = o.fence
	}
	c.wantSteps("after attempts that were never begun", c.lookup(id), steps)
}

// checkNotAttemptedAgain sends such an end again, and sends it late.
func checkNotAttemptedAgain(c *check) {
	id := newID()
	for range 2 {
		o := c.acquire(id, long, long)
		o.mustFinish(o.change(driver.StateReleased))
		// An attempt has one end, and the release has already counted this attempt.
		o.mustFinish(o.unused())
		c.wantClaim("a release, and then not begun", c.lookup(id), o.attempt, o.fence)
	}
	o := c.acquire(id, long, long)
	for range 3 {
		c.wantUncounted("an attempt that was never begun, said again",
			o.mustFinish(o.unused()).Record, o)
	}
	c.wantUncounted("an attempt that was never begun, said three times", c.lookup(id), o)

	late := c.acquire(id, c.h.Lease, long)
	if late.attempt != 3 {
		c.Errorf("after two attempts and one that was never begun: got attempt %d", late.attempt)
	}
	c.pass(c.h.Lease)
	next := c.acquire(id, long, long)
	before := c.lookup(id)
	for _, old := range []*owner{o, late} {
		c.wantEnd("not begun, from an owner that was taken over", old.finish(old.unused()),
			false, false)
	}
	c.wantUnchanged("not begun, from an owner that was taken over", before, c.lookup(id))
	next.mustFinish(next.change(driver.StateSucceeded))
}

// checkNotAttemptedIrreversible gives claims of dangerous keys back unstarted. The effect that an
// earlier attempt has declared must still be resolved.
func checkNotAttemptedIrreversible(c *check) {
	for crash, way := range ways {
		id := c.uncertain(newID(), crash).id
		for range 2 {
			next := c.stranger(id)
			c.wantOutcome("a claim to find out", next.take(long), driver.Acquired)
			if next.attempt != 2 {
				c.Errorf("a claim to find out %s: got attempt %d", way, next.attempt)
			}
			for range 2 {
				a := next.mustFinish(next.unused())
				c.wantState("a claim to find out that was never begun", a.Record,
					driver.StateUncertain)
			}
			next.attempt--
			c.wantUncertain("a claim to find out that was never begun", next)
		}
	}
}

// checkNotAttemptedRefused sends contradictions: NotAttempted with an end, and with NotStarted,
// which only an attempt that began can know.
func checkNotAttemptedRefused(c *check) {
	var input *driver.InputError
	for _, state := range c.ends() {
		o := c.acquire(newID(), long, long)
		before := c.lookup(o.id)
		change := o.change(state)
		change.NotAttempted, change.NotStarted = true, state == driver.StateReleased
		if a := c.finishes(change)[0]; !errors.As(a.Err, &input) || a.Held || a.Written {
			c.Errorf("NotAttempted with %v and NotStarted=%t was answered %s and %v",
				state, change.NotStarted, describe(a), a.Err)
		}
		c.wantUnchanged("a Change that contradicts itself", before, c.lookup(o.id))
		o.mustFinish(o.change(state))
	}
}
