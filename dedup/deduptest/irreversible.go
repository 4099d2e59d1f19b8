package deduptest

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// declare says that the irreversible part of o begins, and keeps its claim alive for
// lease.
func (o *owner) declare(lease time.Duration) driver.Answer {
	o.c.Helper()
	renewal := o.renewal()
	renewal.Lease, renewal.Irreversible = lease, true
	return o.c.learnt("Renew with Irreversible", o.c.renews(renewal)[0])
}

// take asks for a key although it may be uncertain.
func (o *owner) take(lease time.Duration) driver.Answer {
	o.c.Helper()
	req := o.request()
	req.Lease, req.TakeUncertain = lease, true
	a := o.send(req)
	if a.Outcome == driver.Acquired {
		o.attempt, o.fence = a.Record.Attempt, a.Record.Fence
	}
	return a
}

// dangerous returns the owner of a live claim whose irreversible part has begun.
func (c *check) dangerous(id driver.ID) *owner {
	c.Helper()
	o := c.acquire(id, long, long)
	if a := o.declare(long); !a.Held || !a.Record.Irreversible {
		c.Fatalf("MarkIrreversible of a live claim: %s danger=%t", describe(a), a.Record.Irreversible)
	}
	return o
}

// uncertain leaves id uncertain, by a crash or by a release, and returns who did it.
func (c *check) uncertain(id driver.ID, crash bool) *owner {
	c.Helper()
	o := c.dangerous(id)
	if !crash {
		o.mustFinish(o.change(driver.StateReleased))
		return o
	}
	if a := o.declare(c.h.Lease); !a.Held {
		c.Fatalf("MarkIrreversible sent again: %s", describe(a))
	}
	c.pass(c.h.Lease)
	return o
}

// ways in which an attempt whose irreversible part has begun ends without saying how.
var ways = map[bool]string{true: "after a crash", false: "after a release"}

// wantUncertain insists that the key is uncertain, that no claim gets it, and that claims and
// lookups do not change it.
func (c *check) wantUncertain(what string, o *owner) {
	c.Helper()
	before := c.lookup(o.id)
	c.wantState(what, before, driver.StateUncertain)
	c.wantClaim(what, before, o.attempt, o.fence)
	if !before.Irreversible || before.Remaining <= long/2 {
		c.Errorf("%s: want danger, and to be remembered for %v, got %t and %v", what, long,
			before.Irreversible, before.Remaining)
	}
	for range 2 {
		a := c.stranger(o.id).claim()
		c.wantOutcome(what+", a claim", a, driver.Uncertain)
		c.wantUnchanged(what+", a claim", before, a.Record)
	}
	c.wantUnchanged(what, before, c.lookup(o.id))
}

// checkIrreversibleKept lets attempts end after MarkIrreversible without saying how.
func checkIrreversibleKept(c *check) {
	for crash, way := range ways {
		c.wantUncertain(way, c.uncertain(newID(), crash))
	}
	o := c.dangerous(newID())
	if rec := c.lookup(o.id); !rec.Irreversible || rec.State != driver.StateInProgress {
		c.Errorf("a live claim after Irreversible: state %v, danger %t", rec.State, rec.Irreversible)
	}
	c.wantOutcome("another claim under a live lease after MarkIrreversible", c.stranger(o.id).claim(),
		driver.InFlight)
	if a := o.renew(long); !a.Held || !a.Record.Irreversible {
		c.Errorf("a plain renewal after Irreversible: %s danger=%t", describe(a), a.Record.Irreversible)
	}
	release := o.change(driver.StateReleased)
	for range 2 { // its reply may be lost
		a := o.mustFinish(release)
		c.wantState("the answer of a release after MarkIrreversible", a.Record, driver.StateUncertain)
	}
	c.wantUncertain("after a renewal and a release", o)
	if a := o.renew(long); a.Held {
		c.Error("an owner that gave up after MarkIrreversible renews")
	}
}

// checkIrreversibleEnds ends attempts in every other way.
func checkIrreversibleEnds(c *check) {
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		o := c.dangerous(newID())
		change := o.change(state)
		change.Result = []byte("known")
		o.mustFinish(change)
		rec := c.lookup(o.id)
		c.wantState("an end after MarkIrreversible", rec, state)
		if rec.Irreversible {
			c.Errorf("a key that is %v is dangerous", state)
		}
		c.wantOutcome("an end after MarkIrreversible, then a claim", c.stranger(o.id).claim(),
			driver.Duplicate)
	}
	o := c.dangerous(newID())
	release := o.change(driver.StateReleased)
	release.NotStarted = true
	for range 2 {
		a := o.mustFinish(release)
		c.wantState("a release that has not begun", a.Record, driver.StateReleased)
	}
	if c.lookup(o.id).Irreversible {
		c.Error("a released key is dangerous")
	}
	next := c.acquire(o.id, c.h.Lease, long)
	if next.attempt != 2 || c.lookup(o.id).Irreversible {
		c.Errorf("the attempt after one that had not begun: attempt %d, danger %t", next.attempt,
			c.lookup(o.id).Irreversible)
	}
	c.pass(c.h.Lease)
	c.wantOutcome("a lapsed attempt without MarkIrreversible", c.stranger(o.id).claim(), driver.Acquired)
}

// checkIrreversibleLife declares danger under a short lease and a short hold, and outlives
// both.
func checkIrreversibleLife(c *check) {
	short := func(o *owner) driver.Renewal {
		renewal := o.renewal()
		renewal.Lease, renewal.Hold, renewal.Irreversible = c.h.Lease, c.h.Lease, true
		return renewal
	}
	// The claims have to live long enough for MarkIrreversible to arrive in time, even at a server
	// that is as slow as this one is now.
	began := time.Now()
	c.lookup(c.acquire(newID(), long, long).id)
	life := 8*c.h.Lease + 20*time.Since(began)
	endangered := func() *owner {
		c.Helper()
		for try := 0; ; try++ { // a machine that stalls may still come too late
			sent := c.now()
			o := c.acquire(newID(), life, 0)
			a := c.learnt("Renew with Irreversible", c.renews(short(o))[0])
			if a.Held {
				return o
			}
			if c.now().Sub(sent) < life || try == 20 {
				c.Fatalf("Renew with Irreversible: %s", describe(a))
			}
		}
	}
	declared, renewed, given := endangered(), endangered(), endangered()
	plain := short(renewed)
	plain.Irreversible, plain.Window = false, c.h.Lease // never for less than before
	c.learnt("Renew", c.renews(plain)[0])
	release := given.change(driver.StateReleased)
	release.Hold = c.h.Lease
	given.mustFinish(release)
	c.pass(life)
	c.wantUncertain("when lease and hold are over", declared)
	c.wantUncertain("when a renewal's lease and hold are over", renewed)
	c.wantUncertain("when a release's hold is over", given)

	// An uncertain key is not kept forever either.
	o := c.acquire(newID(), c.h.Lease, c.h.Lease)
	brief := short(o)
	brief.Window = 2 * c.h.Lease
	c.learnt("Renew with Irreversible", c.renews(brief)[0])
	c.pass(2 * c.h.Lease)
	c.wantState("when the window of an uncertain key is over", c.lookup(o.id), driver.StateAbsent)
}

// checkIrreversibleLate lets owners declare danger, and keep steps, when the key is no longer
// theirs.
func checkIrreversibleLate(c *check) {
	refused := func(what string, o *owner) {
		c.Helper()
		before := c.lookup(o.id)
		renewal := o.renewal()
		renewal.Irreversible, renewal.Steps = true, []byte("late")
		if a := c.learnt("Renew", c.renews(renewal)[0]); a.Held {
			c.Errorf("MarkIrreversible %s: %s", what, describe(a))
		}
		c.wantUnchanged("MarkIrreversible "+what, before, c.lookup(o.id))
	}
	refused("of a key that was never claimed", c.stranger(newID()))
	for _, state := range c.ends() {
		refused("of a key its owner ended as "+state.String(), c.ended(newID(), state, nil))
	}
	late := c.lapsed(newID())
	c.acquire(late.id, long, long)
	refused("by an owner that was taken over", late)
	refused("by a stranger", c.stranger(late.id))
	late = c.uncertain(newID(), true)
	taken := c.stranger(late.id)
	c.wantOutcome("a claim to find out", taken.take(long), driver.Acquired)
	refused("by an owner whose uncertain key was taken over", late)
	forgotten := c.lapsed(newID())
	c.forget(forgotten.id, long)
	refused("of a forgotten claim", forgotten)
}

// checkTake takes uncertain keys over, and lets the new owners crash and give up.
func checkTake(c *check) {
	for crash, way := range ways {
		id := newID()
		o := c.uncertain(id, crash)
		for range 2 {
			next := c.stranger(id)
			a := next.take(long)
			c.wantOutcome("a claim to find out "+way, a, driver.Acquired)
			if a.Mine || next.attempt != o.attempt+1 || next.fence <= o.fence ||
				!a.Record.Irreversible {
				c.Errorf("a claim to find out %s: after attempt %d and fence %d got %s danger=%t",
					way, o.attempt, o.fence, describe(a), a.Record.Irreversible)
			}
			c.wantRemaining("a claim to find out", a.Record, long)
			if a := next.take(long); !a.Mine {
				c.Errorf("the same claim to find out sent again: %s", describe(a))
			}
			c.wantOutcome("a second claim to find out", c.stranger(id).take(long), driver.InFlight)
			c.wantOutcome("another claim meanwhile", c.stranger(id).claim(), driver.InFlight)
			c.wantEnd("the end of an owner that was taken over",
				o.finish(o.change(driver.StateReleased)), false, false)
			next.mustFinish(next.change(driver.StateReleased))
			c.wantUncertain("given back by a caller that did not find out", next)
			o = next
		}
		dead := c.stranger(id)
		c.wantOutcome("a claim to find out", dead.take(c.h.Lease), driver.Acquired)
		c.pass(c.h.Lease)
		c.wantUncertain("when the caller that was to find out has crashed", dead)
		last := c.stranger(id)
		c.wantOutcome("a claim to find out", last.take(long), driver.Acquired)
		last.mustFinish(last.change(driver.StateSucceeded))
		c.wantOutcome("a claim when it was found out", c.stranger(id).claim(), driver.Duplicate)
	}
}

// checkTakeOther claims keys that are not uncertain with TakeUncertain, and expects the same
// answers as without it.
func checkTakeOther(c *check) {
	fresh := c.stranger(newID())
	if a := fresh.take(long); a.Outcome != driver.Acquired || a.Record.Irreversible ||
		a.Record.Attempt != 1 {
		c.Errorf("a claim to find out about an absent key: %s danger=%t", describe(a),
			a.Record.Irreversible)
	}
	live := c.dangerous(newID())
	c.wantOutcome("a claim to find out about a live key", c.stranger(live.id).take(long),
		driver.InFlight)
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		done := c.ended(newID(), state, nil)
		c.wantOutcome("a claim to find out about a key that is "+state.String(),
			c.stranger(done.id).take(long), driver.Duplicate)
	}
	lapsed := c.stranger(c.lapsed(newID()).id)
	if a := lapsed.take(long); a.Outcome != driver.Acquired || a.Record.Irreversible {
		c.Errorf("a claim to find out about a lapsed key: %s danger=%t", describe(a),
			a.Record.Irreversible)
	}
}

// checkUncertainEnds lets an operator, or a program that knows better, decide.
func checkUncertainEnds(c *check) {
	for crash, way := range ways {
		late := c.uncertain(newID(), crash)
		a := late.finish(late.landed("late"))
		// The late owner still holds the claim if it crashed, and no longer if it released the
		// claim.
		c.wantEnd("a landed effect "+way, a, crash, true)
		c.wantState("a landed effect "+way, c.lookup(late.id), driver.StateSucceeded)

		marked := c.stranger(c.uncertain(newID(), crash).id)
		a = marked.finish(marked.landed("mark"))
		c.wantEnd("a mark "+way, a, false, true)
		c.wantState("a mark "+way, c.lookup(marked.id), driver.StateSucceeded)

		forgotten := c.uncertain(newID(), crash)
		c.forget(forgotten.id, long)
		c.wantState("forgotten "+way, c.lookup(forgotten.id), driver.StateAbsent)
		next := c.acquire(forgotten.id, long, long)
		if rec := c.lookup(next.id); next.attempt != 1 || next.fence <= forgotten.fence ||
			rec.Irreversible || rec.Steps != nil {
			c.Errorf("forgotten %s, then a claim: attempt %d, fence %d after %d, danger %t",
				way, next.attempt, next.fence, forgotten.fence, rec.Irreversible)
		}
	}
}
