package deduptest

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// owner is one attempt of one worker: a token, and what its claim was told.
type owner struct {
	c       *check
	id      driver.ID
	token   driver.Token
	attempt int
	fence   uint64
	until   time.Time // when its lease ends, by the clock of check.now
}

// stranger returns an attempt on id that has not asked for anything yet.
func (c *check) stranger(id driver.ID) *owner {
	return &owner{c: c, id: id, token: newToken()}
}

// acquire claims id with a fresh token and insists on getting it.
func (c *check) acquire(id driver.ID, lease, hold time.Duration) *owner {
	c.Helper()
	o := c.stranger(id)
	req := o.request()
	req.Lease, req.Hold = lease, hold
	o.mustClaim(req)
	return o
}

// lapsed returns an owner whose lease has run out.
func (c *check) lapsed(id driver.ID) *owner {
	c.Helper()
	o := c.acquire(id, c.h.Lease, long)
	c.pass(c.h.Lease)
	return o
}

// ended leaves id in the given state and returns who did it.
func (c *check) ended(id driver.ID, state driver.State, result []byte) *owner {
	c.Helper()
	o := c.acquire(id, long, long)
	change := o.change(state)
	change.Result = result
	o.mustFinish(change)
	return o
}

// request returns a claim that outlives the check.
func (o *owner) request() driver.ClaimRequest {
	return driver.ClaimRequest{ID: o.id, Token: o.token, Lease: long, Hold: long}
}

// renewal outlives the check.
func (o *owner) renewal() driver.Renewal {
	return driver.Renewal{ID: o.id, Token: o.token, Fence: o.fence, Lease: long, Hold: long,
		Window: long}
}

// change returns an end that leaves the key in state, with a window that outlives the check.
func (o *owner) change(state driver.State) driver.Finish {
	change := driver.Finish{
		ID: o.id, Token: o.token, Fence: o.fence, Attempt: o.attempt,
		State: state, Lease: long, Hold: long, Window: long,
	}
	if !o.until.IsZero() {
		change.Until = o.until.Add(-o.c.moved) // for a store that asks the time itself
	}
	return change
}

// granted notes the answer to a claim that was sent at the time sent.
func (o *owner) granted(lease time.Duration, a driver.Answer, sent time.Time) {
	o.attempt, o.fence = a.Record.Attempt, a.Record.Fence
	if !a.Mine {
		o.until = sent.Add(lease)
	}
}

// landed returns the change of an effect that has happened.
func (o *owner) landed(result string) driver.Finish {
	change := o.change(driver.StateSucceeded)
	change.EffectApplied, change.Result = true, []byte(result)
	return change
}

func (o *owner) send(req driver.ClaimRequest) driver.Answer {
	o.c.Helper()
	return o.c.learnt("Claim", o.c.claims(req)[0])
}

func (o *owner) claim() driver.Answer {
	o.c.Helper()
	return o.send(o.request())
}

// mustClaim insists on Acquired and remembers attempt and fence.
func (o *owner) mustClaim(req driver.ClaimRequest) driver.Answer {
	o.c.Helper()
	sent := o.c.now()
	a := o.send(req)
	o.c.wantOutcome("Claim", a, driver.Acquired)
	o.granted(req.Lease, a, sent)
	return a
}

func (o *owner) finish(change driver.Finish) driver.Answer {
	o.c.Helper()
	a := o.c.learnt("Finish", o.c.finishes(change)[0])
	o.gaveUp(change, a)
	return a
}

// gaveUp clears the end of the lease after a release or a failure, because the claim's lease must
// not count for a second, different end of the attempt.
func (o *owner) gaveUp(change driver.Finish, a driver.Answer) {
	if change.State != driver.StateSucceeded && a.Written {
		o.until = time.Time{}
	}
}

// mustFinish insists that the owner still held its claim and its end was written.
func (o *owner) mustFinish(change driver.Finish) driver.Answer {
	o.c.Helper()
	a := o.finish(change)
	o.c.wantEnd("Finish as "+change.State.String(), a, true, true)
	return a
}

func (o *owner) renew(lease time.Duration) driver.Answer {
	o.c.Helper()
	renewal := o.renewal()
	renewal.Lease = lease
	sent := o.c.now()
	a := o.c.learnt("Renew", o.c.renews(renewal)[0])
	if a.Held {
		o.until = sent.Add(lease)
	}
	return a
}
