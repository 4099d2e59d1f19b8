package deduptest

import (
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

// checkUnreadable makes every call for a key whose record the store cannot read, between two
// healthy keys.
func checkUnreadable(c *check, plant planter) {
	bad := c.stranger(newID())
	plant(c, c.store, bad.id)
	wantErr := func(what string, a driver.Answer) {
		c.Helper()
		if !errors.Is(a.Err, driver.ErrUnreadable) {
			c.Errorf("%s of an unreadable record: want ErrUnreadable, got %v with %s", what,
				a.Err, describe(a))
		}
	}
	left, right := c.stranger(newID()), c.stranger(newID())
	answers := c.claims(left.request(), bad.request(), right.request())
	wantErr("Claim", answers[1])
	c.wantOutcome("a claim before an unreadable record", answers[0], driver.Acquired)
	c.wantOutcome("a claim after an unreadable record", answers[2], driver.Acquired)

	for _, state := range c.ends() {
		answers = c.finishes(bad.change(state), left.change(driver.StateSucceeded))
		wantErr("Finish as "+state.String(), answers[0])
		c.wantEnd("Finish in a batch with an unreadable record", answers[1], true, true)
	}
	wantErr("a landed Finish", c.finishes(bad.landed("x"))[0])
	answers = c.renews(bad.renewal(), right.renewal())
	wantErr("Renew", answers[0])
	if !answers[1].Held {
		c.Errorf("Renew in a batch with an unreadable record: %s", describe(answers[1]))
	}
	answers = c.lookups(right.id, bad.id)
	wantErr("Lookup", answers[1])
	c.wantState("Lookup in a batch with an unreadable record", answers[0].Record,
		driver.StateInProgress)
	wantErr("Claim after all that", c.claims(bad.request())[0])
}
