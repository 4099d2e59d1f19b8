package deduptest

import (
	"github.com/onceward/onceward/dedup/driver"
)

// resolvable returns the store if it finds uncertain keys, or nil.
func (c *check) resolvable() driver.Resolvable {
	s, _ := c.store.(driver.Resolvable)
	return s
}

// listUncertain follows the cursors to the end, with pages of two keys.
func (c *check) listUncertain(s driver.Resolvable) map[driver.ID]driver.UncertainRecord {
	c.Helper()
	all := make(map[driver.ID]driver.UncertainRecord)
	for cursor := ""; ; {
		page, next, err := s.Uncertain(c.Context(), cursor, 2)
		if err != nil {
			c.Fatalf("Uncertain: %v", err)
		}
		for _, u := range page {
			all[u.ID] = u
		}
		if next == "" {
			return all
		}
		cursor = next
	}
}

// checkUncertainListed: a list has the uncertain keys, and no others.
func checkUncertainListed(c *check) {
	s := c.resolvable()
	if s == nil {
		return
	}
	var in, out []*owner
	for crash := range ways {
		in = append(in, c.uncertain(newID(), crash), c.uncertain(newID(), crash))
		decided := c.uncertain(newID(), crash)
		decided.finish(c.stranger(decided.id).landed(""))
		forgotten := c.uncertain(newID(), crash)
		c.forget(forgotten.id, long)
		taken := c.stranger(c.uncertain(newID(), crash).id)
		taken.take(long)
		withdrawn := c.dangerous(newID())
		change := withdrawn.change(driver.StateReleased)
		change.NotStarted = true
		withdrawn.mustFinish(change)
		succeeded := c.dangerous(newID())
		succeeded.mustFinish(succeeded.change(driver.StateSucceeded))
		out = append(out, decided, forgotten, taken, withdrawn, succeeded, c.dangerous(newID()),
			c.stranger(c.lapsed(newID()).id))
	}
	found := c.listUncertain(s)
	for _, o := range in {
		u, ok := found[o.id]
		switch {
		case !ok:
			c.Errorf("an uncertain key is not listed")
		case u.Record.State != driver.StateUncertain || u.Record.Attempt != o.attempt ||
			u.Record.Fence != o.fence || !u.Record.Irreversible:
			c.Errorf("an uncertain key is listed as %+v", u.Record)
		case u.Asked != 0 || u.Age < 0 || u.Age > long || u.Rested < 0 || u.Rested > u.Age:
			c.Errorf("an uncertain key is listed as asked about %d times, for %v, at rest for %v",
				u.Asked, u.Age, u.Rested)
		}
	}
	for i, o := range out {
		if u, ok := found[o.id]; ok {
			c.Errorf("key %d, which is not uncertain, is listed as %+v", i, u.Record)
		}
	}
}

// ask claims an uncertain key to find out about it.
func (o *owner) ask(s driver.Resolvable) driver.Answer {
	o.c.Helper()
	a := s.ClaimUncertain(o.c.Context(), o.request())
	if a.Outcome == driver.Acquired {
		o.attempt, o.fence = a.Record.Attempt, a.Record.Fence
	}
	return o.c.learnt("ClaimUncertain", a)
}

// checkUncertainAsked: ClaimUncertain is not counted as an attempt, and one caller at a time gets
// the claim.
func checkUncertainAsked(c *check) {
	s := c.resolvable()
	if s == nil {
		return
	}
	for crash, way := range ways {
		doubt := c.uncertain(newID(), crash)
		before := c.lookup(doubt.id)
		o := c.stranger(doubt.id)
		a := o.ask(s)
		if a.Outcome != driver.Acquired || a.Mine || !a.Record.Irreversible ||
			a.Record.Attempt != before.Attempt || a.Record.Fence <= before.Fence ||
			a.Record.Origin != before.Origin || a.Record.Label != before.Label {
			c.Errorf("asked about %s: %s %+v, and was %+v", way, describe(a), a.Record, before)
		}
		if again := o.ask(s); again.Outcome != driver.Acquired || !again.Mine {
			c.Errorf("asked about %s, and sent again: %s", way, describe(again))
		}
		c.wantOutcome("asked about "+way+" at the same time", c.stranger(o.id).ask(s),
			driver.InFlight)
		release := o.change(driver.StateReleased)
		o.mustFinish(release)
		u, ok := c.listUncertain(s)[o.id]
		if !ok || u.Asked != 1 || u.Record.Attempt != before.Attempt {
			c.Errorf("asked about %s in vain: listed %t, asked %d times, %+v", way, ok, u.Asked,
				u.Record)
		}
		last := c.stranger(o.id)
		last.ask(s)
		last.mustFinish(last.change(driver.StateSucceeded))
		if rec := c.lookup(o.id); rec.State != driver.StateSucceeded ||
			rec.Attempt != before.Attempt {
			c.Errorf("asked about %s, and found done: %+v", way, rec)
		}
	}
	c.wantNotAsked(s)
}

// wantNotAsked asks about keys that are not uncertain.
func (c *check) wantNotAsked(s driver.Resolvable) {
	c.Helper()
	fresh := c.stranger(newID())
	c.wantOutcome("asked about an absent key", fresh.ask(s), driver.InFlight)
	c.wantState("asked about an absent key", c.lookup(fresh.id), driver.StateAbsent)
	live := c.dangerous(newID())
	c.wantOutcome("asked about a live key", c.stranger(live.id).ask(s), driver.InFlight)
	lapsed := c.stranger(c.lapsed(newID()).id)
	c.wantOutcome("asked about a lapsed key", lapsed.ask(s), driver.InFlight)
	for _, state := range c.keeps(driver.StateSucceeded, driver.StateFailed) {
		done := c.ended(newID(), state, nil)
		c.wantOutcome("asked about a key that is "+state.String(), c.stranger(done.id).ask(s),
			driver.Duplicate)
	}
}
