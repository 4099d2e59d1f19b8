package deduptest

import (
	"bytes"

	"github.com/onceward/onceward/dedup/driver"
)

// maxSteps is the largest Steps that a store must keep, in bytes.
const maxSteps = 64 << 10

// note keeps steps with the claim of o.
func (o *owner) note(steps []byte) driver.Answer {
	o.c.Helper()
	renewal := o.renewal()
	renewal.Steps = steps
	return o.c.learnt("Renew with Steps", o.c.renews(renewal)[0])
}

// mustNote insists that the claim is held.
func (o *owner) mustNote(steps []byte) {
	o.c.Helper()
	if a := o.note(steps); !a.Held {
		o.c.Fatalf("Renew with Steps: %s", describe(a))
	}
}

func (c *check) wantSteps(what string, rec driver.Record, want []byte) {
	c.Helper()
	if !bytes.Equal(rec.Steps, want) {
		c.Errorf("%s: want %d bytes of steps, got %d", what, len(want), len(rec.Steps))
	}
}

// checkSteps expects that a store keeps the steps it gets, and that neither a renewal without steps
// nor older steps replace them.
func checkSteps(c *check) {
	for _, size := range []int{1, 255, 256, 4 << 10, maxSteps} {
		o := c.acquire(newID(), long, long)
		c.wantSteps("a fresh claim", c.lookup(o.id), nil)
		want := binary(size)
		o.mustNote(want)
		c.wantSteps("steps", c.lookup(o.id), want)
		c.wantSteps("another claim meanwhile", c.stranger(o.id).claim().Record, want)
		c.wantSteps("the same claim sent again", o.claim().Record, want)
		o.mustNote(nil)
		o.declare(long)
		c.wantSteps("renewals without steps", c.lookup(o.id), want)
	}
	o := c.acquire(newID(), long, long)
	o.mustNote([]byte("one"))
	o.mustNote([]byte("one, two"))
	o.mustNote([]byte("one")) // sent before the second, and late
	c.wantSteps("what came late", c.lookup(o.id), []byte("one, two"))
	o.mustNote([]byte("one, TWO"))
	c.wantSteps("steps of the same length", c.lookup(o.id), []byte("one, TWO"))
}

// checkStepsOutlive takes steps through everything that does not end a key.
func checkStepsOutlive(c *check) {
	want := []byte("charge, mail")
	o := c.acquire(newID(), long, long)
	o.mustNote(want)
	o.mustFinish(o.change(driver.StateReleased))
	c.wantSteps("released", c.lookup(o.id), want)

	o = c.stranger(o.id)
	req := o.request()
	req.Lease = c.h.Lease
	c.wantSteps("claimed again", o.mustClaim(req).Record, want)
	c.pass(c.h.Lease)
	c.wantSteps("lapsed", c.lookup(o.id), want)

	o = c.stranger(o.id)
	c.wantSteps("taken over", o.mustClaim(o.request()).Record, want)
	o.declare(long)
	o.mustFinish(o.change(driver.StateReleased))
	c.wantSteps("uncertain", c.lookup(o.id), want)

	o = c.stranger(o.id)
	c.wantSteps("taken to find out", o.take(long).Record, want)
	release := o.change(driver.StateReleased)
	release.NotStarted = true
	o.mustFinish(release)
	c.wantSteps("not begun", c.lookup(o.id), want)

	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		o := c.acquire(newID(), long, long)
		o.mustNote(want)
		change := o.change(state)
		change.Result = []byte("result")
		a := o.mustFinish(change)
		c.wantSteps("the answer of an end", a.Record, nil)
		c.wantSteps("an end", c.lookup(o.id), nil)
		c.wantResult("an end after steps", c.lookup(o.id), []byte("result"))
	}
	o = c.acquire(newID(), long, long)
	o.mustNote(want)
	o.mustFinish(o.change(driver.StateReleased))
	c.forget(o.id, long)
	c.acquire(o.id, long, long)
	c.wantSteps("forgotten, then claimed", c.lookup(o.id), nil)
}

// checkStepsCopies writes into every slice that it gave the store or got from it.
func checkStepsCopies(c *check) {
	want := binary(64)
	o := c.acquire(newID(), long, long)
	given := bytes.Clone(want)
	o.mustNote(given)
	clear(given)
	c.wantSteps("after writing into the slice that was given", c.lookup(o.id), want)
	clear(c.lookup(o.id).Steps)
	clear(o.note(nil).Record.Steps)
	clear(c.stranger(o.id).claim().Record.Steps)
	c.wantSteps("after writing into the slices that came back", c.lookup(o.id), want)
}
