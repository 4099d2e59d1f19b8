package dedup

import (
	"context"
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

// resolve finds out about an uncertain key that c has taken over, and returns the claim for
// its caller: c itself when the effect is to run again.
//
// The key stays irreversible meanwhile. If this process dies, or the next attempt dies before it
// calls MarkIrreversible, the key is uncertain again and is asked about again: the answer may
// have changed by then, if a request was still on its way.
func (d *Deduper) resolve(ctx context.Context, c *Claim) *Claim {
	found := d.findOut(ctx, c)
	fire(d.cfg.Observer.Claimed, found.event(false))
	if found.Outcome == Uncertain {
		fire(d.cfg.Observer.Uncertain, found.event(false))
	}
	return found
}

// findOut runs Config.Resolve under the claim, as Do runs a handler.
func (d *Deduper) findOut(ctx context.Context, c *Claim) *Claim {
	run := new(keptClaim)
	c.keep(ctx, run, false)
	defer run.drop()
	returned := false
	defer func() {
		if !returned { // Resolve panicked, or called runtime.Goexit
			d.putBack(ctx, c)
		}
	}()
	rec := c.Record
	rec.State = driver.StateUncertain
	var found Resolution
	err := context.Cause(run)
	if err == nil {
		found, err = d.cfg.Resolve(run, c.Key, rec)
	}
	returned = true

	ended := context.Cause(run)
	switch state, data := found.State, found.Result; {
	case err == nil && state == driver.StateSucceeded:
		return d.foundEnd(ctx, c, Completion{Claim: c, Result: data})
	case err == nil && state == driver.StateFailed:
		return d.foundEnd(ctx, c, Completion{Claim: c, Err: Permanent(errors.New(string(data)))})
	case ended != nil:
		// The claim is lost, the Deduper is closed, or the caller has gone: ignore any other
		// answer.
		d.putBack(ctx, c)
		return c.foundNothing(Unknown, unknown(ended))
	case err == nil && state == driver.StateReleased:
		run.drop()
		c.mu.Lock()
		c.kept = nil // for the caller's KeepAlive
		c.mu.Unlock()
		return c
	case err == nil:
		err = errStillUnknown
	}
	d.putBack(ctx, c)
	return c.foundNothing(Uncertain, &unresolvedError{err})
}

// putBack gives up a claim that was taken to resolve its key, which is uncertain again. Where that
// fails, the claim lapses, which does the same.
func (d *Deduper) putBack(ctx context.Context, c *Claim) {
	_ = d.conclude(ctx, Completion{Claim: c, Err: errReleased})
}

// foundEnd records how the earlier attempt has ended, and returns the Duplicate for the caller.
func (d *Deduper) foundEnd(ctx context.Context, c *Claim, done Completion) *Claim {
	err := d.conclude(ctx, done)
	var change driver.Finish
	c.change(&done, &d.cfg, &change)
	rec := Record{
		State: change.State, Attempt: c.Attempt, Fence: c.fence, Result: change.Result,
		NoResult:    change.NoResult,
		Fingerprint: c.Record.Fingerprint, Origin: c.Record.Origin, Label: c.Record.Label,
		Remaining: c.window,
	}
	if done.Err != nil { // if the store keeps no failures the change is a release; report a failure
		rec.State, rec.Result = driver.StateFailed, failureText(done.Err)
	}
	switch {
	case err == nil, errors.Is(err, ErrNoResult):
	case c.Stored != nil && terminal(c.Stored.State): // somebody else has recorded an end first
		rec = *c.Stored
	default:
		return c.foundNothing(Unknown, unknown(err))
	}
	return &Claim{
		Key: c.Key, Outcome: Duplicate, Observed: Duplicate, Attempt: rec.Attempt, Record: rec,
		Cause: causeOf(Duplicate, &c.message.origin, &rec, c.window/2), d: d, id: c.id,
		message: c.message,
	}
}

// foundNothing returns the caller's claim when the key of c could not be resolved.
func (c *Claim) foundNothing(outcome driver.Outcome, err error) *Claim {
	rec := c.Record
	rec.State = driver.StateUncertain
	return &Claim{
		Key: c.Key, Outcome: outcome, Observed: outcome, Attempt: c.Attempt, Record: rec,
		d: c.d, id: c.id, message: c.message, err: err,
	}
}
