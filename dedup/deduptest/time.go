package deduptest

import (
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

func checkTakeover(c *check) {
	id := newID()
	o := c.lapsed(id)
	if rec := c.lookup(id); rec.State != driver.StateInProgress || rec.Remaining > 0 {
		c.Errorf("a lapsed claim within its hold: want in_progress with nothing remaining, got %v with %v", rec.State, rec.Remaining)
	}
	for want := 2; want <= 4; want++ {
		next := c.acquire(id, c.h.Lease, long)
		if next.attempt != want {
			c.Errorf("takeover: want attempt %d, got %d", want, next.attempt)
		}
		if next.fence <= o.fence {
			c.Errorf("takeover: fence %d does not grow over %d", next.fence, o.fence)
		}
		c.pass(c.h.Lease)
		o = next
	}
}

func checkLiveClaim(c *check) {
	id := newID()
	o := c.acquire(id, long, 0)
	for range 3 {
		c.wantOutcome("a claim under a live lease", c.stranger(id).claim(), driver.InFlight)
	}
	c.pass(c.h.Lease)
	c.wantOutcome("a claim under a live lease, later", c.stranger(id).claim(), driver.InFlight)
	o.mustFinish(o.change(driver.StateSucceeded))
}

func checkReleased(c *check) {
	id := newID()
	fence := uint64(0)
	for attempt := 1; attempt <= 4; attempt++ {
		o := c.acquire(id, long, long)
		if o.attempt != attempt {
			c.Errorf("claim after %d releases: got attempt %d", attempt-1, o.attempt)
		}
		if o.fence <= fence {
			c.Errorf("claim after a release: fence %d does not grow over %d", o.fence, fence)
		}
		fence = o.fence
		o.mustFinish(o.change(driver.StateReleased))
		rec := c.lookup(id)
		c.wantState("after a release", rec, driver.StateReleased)
		c.wantClaim("after a release", rec, attempt, fence)
		c.wantRemaining("after a release", rec, long)
	}
}

// checkHoldExpiry leaves one key to a crash and one to a release, and outlives the hold
// of both.
func checkHoldExpiry(c *check) {
	crashed, released := newID(), newID()
	owners := []*owner{c.acquire(crashed, c.h.Lease, c.h.Lease), c.acquire(released, long, long)}
	change := owners[1].change(driver.StateReleased)
	change.Hold = c.h.Lease
	owners[1].mustFinish(change)
	c.pass(2 * c.h.Lease)
	for _, old := range owners {
		c.wantState("after its hold", c.lookup(old.id), driver.StateAbsent)
		next := c.acquire(old.id, long, long)
		if next.attempt != 1 {
			c.Errorf("after its hold a key starts with attempt %d", next.attempt)
		}
		if next.fence <= old.fence {
			c.Errorf("after its hold: fence %d does not grow over %d", next.fence, old.fence)
		}
	}
}

func checkWindowExpiry(c *check) {
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		id := newID()
		o := c.acquire(id, long, long)
		change := o.change(state)
		change.Window, change.Result = c.h.Lease, []byte("x")
		o.mustFinish(change)
		c.pass(c.h.Lease)
		rec := c.lookup(id)
		c.wantState("after its window", rec, driver.StateAbsent)
		next := c.acquire(id, long, long)
		if next.attempt != 1 {
			c.Errorf("after its window a key starts with attempt %d", next.attempt)
		}
		if next.fence <= o.fence {
			c.Errorf("after its window: fence %d does not grow over %d", next.fence, o.fence)
		}
		if rec := c.lookup(id); rec.Result != nil {
			c.Error("a new claim carries the result of the forgotten record")
		}
	}
}

// checkWindowOfEach ends keys with two different windows in one batch. Half of the ends have
// results; the store may write the others without checking the claim.
func checkWindowOfEach(c *check) {
	windows := []time.Duration{c.h.Lease, long, c.h.Lease, long}
	var reqs []driver.ClaimRequest
	var changes []driver.Finish
	var ids []driver.ID
	for i, window := range slices.Concat(windows, windows) {
		plain := i >= len(windows)
		req := driver.ClaimRequest{ID: newID(), Token: newToken(), Lease: long, Hold: long,
			Window: window, NoResult: plain}
		reqs, ids = append(reqs, req), append(ids, req.ID)
	}
	for i, a := range c.claims(reqs...) {
		c.wantOutcome("a fresh claim in a batch", c.learnt("Claim", a), driver.Acquired)
		change := driver.Finish{ID: ids[i], Token: reqs[i].Token, Fence: a.Record.Fence,
			Attempt: a.Record.Attempt, State: driver.StateSucceeded, Lease: long, Hold: long,
			Window: reqs[i].Window, MayOverwrite: reqs[i].NoResult}
		if !reqs[i].NoResult {
			change.Result = []byte("x")
		}
		changes = append(changes, change)
	}
	for _, a := range c.finishes(changes...) {
		c.wantEnd("an owner's end in a batch", c.learnt("Finish", a), true, true)
	}
	c.pass(c.h.Lease)
	for i, a := range c.lookups(ids...) {
		want := driver.StateSucceeded
		if reqs[i].Window != long {
			want = driver.StateAbsent
		}
		c.wantState(fmt.Sprintf("key %d of a batch, with a window of %v", i, reqs[i].Window),
			c.learnt("Lookup", a).Record, want)
	}
}

// checkWindowNoLease keeps window and lease apart: a claim lapses with its lease however long
// its hold is, and a record outlives the lease it was made under.
func checkWindowNoLease(c *check) {
	crashed := newID()
	c.acquire(crashed, c.h.Lease, long)
	done := c.endedInTime(c.h.Lease)
	c.pass(3 * c.h.Lease)
	c.wantOutcome("a claim when the lease has lapsed and the hold has not",
		c.stranger(crashed).claim(), driver.Acquired)
	c.wantOutcome("a claim of a key finished under a short lease", c.stranger(done).claim(),
		driver.Duplicate)
}

// endedInTime returns a key that has succeeded under a claim which would be forgotten two leases
// after it was made. On a busy machine the first try may come too late.
func (c *check) endedInTime(lease time.Duration) driver.ID {
	c.Helper()
	for range 20 {
		began := c.now()
		o := c.acquire(newID(), lease, lease)
		a := o.finish(o.change(driver.StateSucceeded))
		if a.Held || c.now().Sub(began) < 2*lease {
			c.wantEnd("Finish as succeeded", a, true, true)
			return o.id
		}
	}
	c.Fatalf("no claim was ended within two leases of %v: see Harness.Lease", lease)
	return driver.ID{}
}
