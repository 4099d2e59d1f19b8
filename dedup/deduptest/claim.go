package deduptest

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

func checkFresh(c *check) {
	id := newID()
	if rec := c.lookup(id); rec.State != driver.StateAbsent || rec.Attempt != 0 {
		c.Fatalf("a key that was never claimed is %v with attempt %d", rec.State, rec.Attempt)
	}
	o := c.stranger(id)
	a := o.mustClaim(o.request())
	if a.Mine {
		c.Error("a first claim is Mine")
	}
	if a.Record.Attempt != 1 || a.Record.Fence == 0 {
		c.Errorf("a first claim: want attempt 1 and a fence, got %s", describe(a))
	}
	rec := c.lookup(id)
	c.wantState("after the claim", rec, driver.StateInProgress)
	c.wantClaim("after the claim", rec, a.Record.Attempt, a.Record.Fence)
	c.wantRemaining("after the claim", rec, long)
}

func checkInFlight(c *check) {
	id := newID()
	o := c.acquire(id, long, long)
	before := c.lookup(id)
	a := c.stranger(id).claim()
	c.wantOutcome("a second owner's claim", a, driver.InFlight)
	c.wantState("a second owner's claim", a.Record, driver.StateInProgress)
	c.wantClaim("a second owner's claim", a.Record, o.attempt, o.fence)
	c.wantRemaining("a second owner's claim", a.Record, long)
	c.wantUnchanged("a second owner's claim", before, c.lookup(id))
}

func checkDuplicate(c *check) {
	id := newID()
	o := c.ended(id, driver.StateSucceeded, []byte("receipt"))
	c.pass(c.h.Lease)
	before := c.lookup(id)
	c.wantState("after Finish", before, driver.StateSucceeded)
	a := c.stranger(id).claim()
	c.wantOutcome("a claim of a finished key", a, driver.Duplicate)
	c.wantState("a claim of a finished key", a.Record, driver.StateSucceeded)
	c.wantClaim("a claim of a finished key", a.Record, o.attempt, o.fence)
	c.wantResult("a claim of a finished key", a.Record, []byte("receipt"))
	c.wantRemaining("a claim of a finished key", a.Record, long)
	if age := a.Record.Age; !c.h.DoneOnly && (age < c.h.Lease/2 || age > long/2) {
		c.Errorf("the key was finished more than %v ago, and its age is %v", c.h.Lease, age)
	}
	c.wantOutcome("the finished owner's own claim", o.claim(), driver.Duplicate)
	c.wantUnchanged("a claim of a finished key", before, c.lookup(id))
}

func checkStoredFailure(c *check) {
	id := newID()
	o := c.ended(id, driver.StateFailed, []byte("card refused: 51"))
	a := c.stranger(id).claim()
	c.wantOutcome("a claim of a failed key", a, driver.Duplicate)
	c.wantState("a claim of a failed key", a.Record, driver.StateFailed)
	c.wantClaim("a claim of a failed key", a.Record, o.attempt, o.fence)
	c.wantResult("a claim of a failed key", a.Record, []byte("card refused: 51"))
	if a.Record.Remaining <= 0 {
		c.Errorf("a failed key is remembered for %v", a.Record.Remaining)
	}
}

func checkMine(c *check) {
	id := newID()
	o := c.stranger(id)
	first := o.request()
	first.Lease = long / 2
	o.mustClaim(first)
	before := c.lookup(id)
	for range 3 {
		a := o.send(o.request()) // asks for a longer lease than it got
		c.wantOutcome("the same claim sent again", a, driver.Acquired)
		if !a.Mine {
			c.Error("the same claim sent again is not Mine")
		}
		c.wantClaim("the same claim sent again", a.Record, o.attempt, o.fence)
		c.wantRemaining("the same claim sent again", a.Record, long/2)
	}
	c.wantUnchanged("the same claim sent again", before, c.lookup(id))
	c.wantOutcome("another owner's claim", c.stranger(id).claim(), driver.InFlight)
}

func checkMineLapsed(c *check) {
	id := newID()
	o := c.lapsed(id)
	a := o.claim()
	c.wantOutcome("the same claim sent again after its lease", a, driver.Acquired)
	if !a.Mine {
		c.Error("the same claim sent again after its lease is not Mine")
	}
	c.wantClaim("the same claim sent again after its lease", a.Record, o.attempt, o.fence)
	if a.Record.Remaining > 0 {
		c.Errorf("sending a claim again has extended its lease by %v", a.Record.Remaining)
	}
	next := c.stranger(id).claim()
	c.wantOutcome("another owner's claim of a lapsed key", next, driver.Acquired)
	c.wantOutcome("the old owner's claim once it was taken over", o.claim(), driver.InFlight)
}

func checkOrigin(c *check) {
	id := newID()
	from := driver.Origin{Source: "orders", Partition: 7, Offset: 1<<40 + 3, Generation: 12}
	f := newFingerprint(1)
	o := c.stranger(id)
	req := o.request()
	req.Origin, req.Label, req.Fingerprint, req.Lease = from, "order 4711, größer", f, c.h.Lease
	o.mustClaim(req)
	c.wantMessage("in progress", c.lookup(id), from, req.Label, f)

	// A later attempt has the origin of its own message.
	c.pass(c.h.Lease)
	o = c.stranger(id)
	req.Token, req.Lease = o.token, long
	req.Origin.Offset, req.Origin.Generation = 1<<40+9, 13
	o.mustClaim(req)
	c.wantMessage("taken over", c.lookup(id), req.Origin, req.Label, f)

	change := o.change(driver.StateSucceeded)
	change.Origin, change.Label, change.Fingerprint = req.Origin, req.Label, f
	o.mustFinish(change)
	a := c.stranger(id).claim()
	c.wantOutcome("a claim of a finished key", a, driver.Duplicate)
	c.wantMessage("succeeded", a.Record, req.Origin, req.Label, f)

	id = newID()
	c.acquire(id, long, long)
	c.wantMessage("claimed without origin", c.lookup(id), driver.Origin{}, "", driver.Fingerprint{})

	// A record shows the newest claim's origin, also an unknown one.
	o = c.stranger(newID())
	req = o.request()
	req.Origin = from
	o.mustClaim(req)
	o.mustFinish(o.change(driver.StateReleased))
	c.acquire(o.id, long, long)
	if rec := c.lookup(o.id); !sameOrigin(rec.Origin, driver.Origin{}) {
		c.Errorf("a claim without origin shows that of an older one: %+v", rec.Origin)
	}
}

// wantMessage compares what a record says of the message.
func (c *check) wantMessage(what string, rec driver.Record, from driver.Origin, label string,
	f driver.Fingerprint) {
	c.Helper()
	if !sameOrigin(rec.Origin, from) {
		c.Errorf("%s: want origin %+v (digest %x), got %+v (digest %x)", what, from, from.Digest(),
			rec.Origin, rec.Origin.Digest())
	}
	if rec.Label != label {
		c.Errorf("%s: want label %q, got %q", what, label, rec.Label)
	}
	if rec.Fingerprint != f {
		c.Errorf("%s: want fingerprint %x, got %x", what, f, rec.Fingerprint)
	}
}

// checkLookupReads keeps looking up a claim until its lease ends and a record until its window
// ends, and expects that reading prolongs neither.
func checkLookupReads(c *check) {
	lapsing, short := newID(), newID()
	c.acquire(lapsing, c.h.Lease, long)
	o := c.acquire(short, long, long)
	change := o.change(driver.StateSucceeded)
	if !c.h.OneWindow {
		change.Window = c.h.Lease
	}
	o.mustFinish(change)
	const looks = 8
	for range looks {
		c.lookups(lapsing, short)
		c.pass(c.h.Lease / looks)
	}
	c.pass(10 * time.Millisecond)
	answers := c.lookups(lapsing, short)
	if rec := answers[0].Record; rec.State != driver.StateInProgress || rec.Remaining > 0 {
		c.Errorf("a claim that was read until its lease ended is %v and lasts for another %v",
			rec.State, rec.Remaining)
	}
	if !c.h.OneWindow {
		c.wantState("a record that was read until its window ended", answers[1].Record,
			driver.StateAbsent)
	}
	c.wantOutcome("a claim after the lease", c.stranger(lapsing).claim(), driver.Acquired)
}
