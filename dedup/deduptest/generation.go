package deduptest

import (
	"github.com/onceward/onceward/dedup/driver"
)

// older and newer are the origins of one message, before and after a rebalance.
var (
	older = driver.Origin{Source: "payments/orders", Partition: 3, Offset: 77, Generation: 5}
	newer = driver.Origin{Source: "payments/orders", Partition: 3, Offset: 77, Generation: 6}
)

// heir returns a claim by the consumer that has the partition now.
func (o *owner) heir(from driver.Origin) driver.ClaimRequest {
	req := o.request()
	req.Origin, req.TakeOverOlderGeneration = from, true
	return req
}

// consumed returns the owner of a live claim with an origin.
func (c *check) consumed(id driver.ID, from driver.Origin) *owner {
	c.Helper()
	o := c.stranger(id)
	req := o.request()
	req.Origin = from
	o.mustClaim(req)
	return o
}

// checkTakesOver takes live claims over, one generation after the other.
func checkTakesOver(c *check) {
	id, steps := newID(), []byte("charge")
	old := c.consumed(id, older)
	old.mustNote(steps)
	for generation := newer.Generation; generation <= newer.Generation+2; generation++ {
		from := newer
		from.Generation = generation
		if generation == newer.Generation+1 {
			from.Source, from.SourceDigest = "", newer.Digest() // as a store gives it back
		}
		next := c.stranger(id)
		a := next.mustClaim(next.heir(from))
		if a.Mine || next.attempt != old.attempt+1 || next.fence <= old.fence ||
			a.Record.Irreversible {
			c.Errorf("generation %d over attempt %d and fence %d: %s", generation, old.attempt,
				old.fence, describe(a))
		}
		c.wantRemaining("a claim that was taken over", a.Record, long)
		c.wantSteps("a claim that was taken over", a.Record, steps)
		rec := c.lookup(id)
		c.wantState("a claim that was taken over", rec, driver.StateInProgress)
		c.wantClaim("a claim that was taken over", rec, next.attempt, next.fence)
		if !sameOrigin(rec.Origin, from) {
			c.Errorf("a claim that was taken over shows the origin %+v", rec.Origin)
		}
		if a := next.send(next.heir(from)); a.Outcome != driver.Acquired || !a.Mine {
			c.Errorf("the claim that took over, sent again: %s", describe(a))
		}
		if a := old.renew(long); a.Held {
			c.Error("an owner that was taken over renews")
		}
		if a := old.declare(long); a.Held {
			c.Error("an owner that was taken over begins what cannot be taken back")
		}
		c.wantUnchanged("after the renewals of an owner that was taken over", rec, c.lookup(id))
		old = next
	}
	old.mustFinish(old.change(driver.StateSucceeded))
}

// checkTakenOverLate ends claims that were taken over, in every way.
func checkTakenOverLate(c *check) {
	id := newID()
	old := c.consumed(id, older)
	next := c.stranger(id)
	next.mustClaim(next.heir(newer))
	before := c.lookup(id)
	for _, state := range c.ends() {
		a := old.finish(old.change(state))
		c.wantEnd(state.String()+" by an owner that was taken over", a, false, false)
		c.wantUnchanged("what an owner is shown that was taken over", before, a.Record)
	}
	a := old.finish(old.unused())
	c.wantEnd("not begun, by an owner that was taken over", a, false, false)
	c.wantUnchanged("after an owner that was taken over", before, c.lookup(id))

	c.wantApplied("an effect that landed although it was taken over", old.finish(old.landed("old")),
		id, "old")
	if a := next.renew(long); a.Held {
		c.Error("who took over renews what has landed since")
	}
	a = next.finish(next.change(driver.StateReleased))
	c.wantEnd("a release by an owner that took over a key whose effect has landed since",
		a, false, false)

	// The other way round.
	id = newID()
	old = c.consumed(id, older)
	next = c.stranger(id)
	next.mustClaim(next.heir(newer))
	next.mustFinish(next.change(driver.StateReleased))
	c.wantEnd("a release by an owner that was taken over",
		old.finish(old.change(driver.StateReleased)), false, false)
	c.wantApplied("an effect that landed after both", old.finish(old.landed("old")), id, "old")
}

// checkNotTakenOver asks for live claims, but not with a newer generation of the same
// partition.
func checkNotTakenOver(c *check) {
	at := func(from driver.Origin, bend func(*driver.Origin)) driver.Origin {
		bend(&from)
		return from
	}
	generation := func(g int32) func(*driver.Origin) {
		return func(o *driver.Origin) { o.Generation = g }
	}
	nowhere := func(o *driver.Origin) { o.Source = "" }
	for what, pair := range map[string][2]driver.Origin{
		"the same generation": {older, older},
		"an older generation": {newer, older},
		"another partition": {older, at(newer, func(o *driver.Origin) {
			o.Partition++
		})},
		"another partition, its numbers turned": {at(older, func(o *driver.Origin) {
			o.Partition = 1 << 24
		}), at(newer, func(o *driver.Origin) { o.Partition = 1 })},
		"another source": {older, at(newer, func(o *driver.Origin) {
			o.Source = "shipping/orders"
		})},
		"no source":                          {older, at(newer, nowhere)},
		"a claim without source":             {at(older, nowhere), newer},
		"neither with a source":              {at(older, nowhere), at(newer, nowhere)},
		"no origin":                          {older, {}},
		"a claim without origin":             {{}, newer},
		"neither with an origin":             {{}, {}},
		"a claim without generation":         {at(older, generation(0)), newer},
		"no generation":                      {older, at(newer, generation(0))},
		"a claim with a negative generation": {at(older, generation(-1)), newer},
		"a negative generation":              {older, at(newer, generation(-1))},
		"two negative generations": {at(older, generation(-2)),
			at(newer, generation(-1))},
	} {
		old := c.consumed(newID(), pair[0])
		before := c.lookup(old.id)
		next := c.stranger(old.id)
		a := next.send(next.heir(pair[1]))
		c.wantOutcome(what, a, driver.InFlight)
		c.wantUnchanged(what, before, a.Record)
		c.wantUnchanged(what, before, c.lookup(old.id))
	}
	old := c.consumed(newID(), older)
	before := c.lookup(old.id)
	req := c.stranger(old.id).request()
	req.Origin = newer
	c.wantOutcome("a newer generation that does not take over", c.claims(req)[0], driver.InFlight)
	c.wantUnchanged("a newer generation that does not take over", before, c.lookup(old.id))
	if a := old.renew(long); !a.Held {
		c.Errorf("a live claim that was not taken over: %s", describe(a))
	}
}

// checkGenerationIrreversible asks for claims whose irreversible part may have begun, in this
// attempt or in an earlier one.
func checkGenerationIrreversible(c *check) {
	declared := c.consumed(newID(), older)
	if a := declared.declare(long); !a.Held {
		c.Fatalf("MarkIrreversible of a live claim: %s", describe(a))
	}
	asking := c.stranger(c.uncertain(newID(), false).id)
	req := asking.request()
	req.Origin, req.TakeUncertain = older, true
	asking.mustClaim(req)
	for what, o := range map[string]*owner{"after MarkIrreversible": declared,
		"to find out": asking} {
		before := c.lookup(o.id)
		for _, take := range []bool{false, true} {
			req := c.stranger(o.id).heir(newer)
			req.TakeUncertain = take
			a := c.learnt("Claim", c.claims(req)[0])
			c.wantOutcome("a newer generation and a live claim "+what, a, driver.InFlight)
		}
		c.wantUnchanged("a newer generation and a live claim "+what, before, c.lookup(o.id))
		if a := o.renew(long); !a.Held {
			c.Errorf("a live claim %s that was not taken over: %s", what, describe(a))
		}
	}
}

// checkGenerationStates asks for keys that are not in flight: the answers are the same as for any
// other claim.
func checkGenerationStates(c *check) {
	meets := func(what string, id driver.ID, want driver.Outcome) driver.Answer {
		c.Helper()
		next := c.stranger(id)
		before := c.lookup(id)
		a := next.send(next.heir(newer))
		c.wantOutcome("a newer generation and a key that is "+what, a, want)
		if want != driver.Acquired {
			c.wantUnchanged("a newer generation and a key that is "+what, before, c.lookup(id))
		}
		return a
	}
	if a := meets("absent", newID(), driver.Acquired); a.Record.Attempt != 1 {
		c.Errorf("a newer generation and an absent key: %s", describe(a))
	}
	for _, state := range c.ends() {
		o := c.consumed(newID(), older)
		change := o.change(state)
		change.Origin = older
		o.mustFinish(change)
		want := driver.Duplicate
		if state == driver.StateReleased {
			want = driver.Acquired
		}
		meets(state.String(), o.id, want)
	}
	lapsed := c.stranger(newID())
	req := lapsed.request()
	req.Origin, req.Lease = newer, c.h.Lease // not older than the request
	lapsed.mustClaim(req)
	c.pass(c.h.Lease)
	if a := meets("lapsed", lapsed.id, driver.Acquired); a.Record.Attempt != 2 {
		c.Errorf("a newer generation and a lapsed claim: %s", describe(a))
	}
	o := c.consumed(newID(), older)
	o.declare(long)
	o.mustFinish(o.change(driver.StateReleased))
	meets("uncertain", o.id, driver.Uncertain)

	if c.h.DoneOnly {
		return
	}
	o = c.stranger(newID())
	req = o.request()
	req.Origin, req.Fingerprint = older, newFingerprint(1)
	o.mustClaim(req)
	req = c.stranger(o.id).heir(newer)
	req.Fingerprint = newFingerprint(1)
	before := c.lookup(o.id)
	c.wantOutcome("a newer generation with another payload", c.claims(req)[0], driver.Mismatch)
	c.wantUnchanged("a newer generation with another payload", before, c.lookup(o.id))
}

// checkOneNewer lets all workers of the newer generation take the same claims over.
func checkOneNewer(c *check) {
	ids := make([]driver.ID, 32)
	for i := range ids {
		ids[i] = c.consumed(newID(), older).id
	}
	c.wantOneWinner(ids, 2, func(req *driver.ClaimRequest) {
		req.Origin, req.TakeOverOlderGeneration = newer, true
	})
}
