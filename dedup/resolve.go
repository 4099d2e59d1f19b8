package dedup

import (
	"context"
	"errors"
)

// Resolution is what Config.Resolve has found out about an uncertain key: [Happened],
// [FailedForGood] or [DidNotHappen]. The zero Resolution is "still unknown".
type Resolution struct {
	state State // StateAbsent is unknown
	data  []byte
}

// Happened says that the effect has happened. The result, which may be nil, is what [Do] stores:
// for most types JSON.
func Happened(result []byte) Resolution { return Resolution{StateSucceeded, result} }

// FailedForGood says that the effect has failed, and that no retry can change it. Duplicates get
// the text replayed as a [*FailedError], cut at 1 KiB.
func FailedForGood(text string) Resolution { return Resolution{StateFailed, []byte(text)} }

// DidNotHappen says that the effect has not happened, and that no request is on its way which could
// still make it happen: it may run again.
func DidNotHappen() Resolution { return Resolution{state: StateReleased} }

// End returns the state that a key reaches by the resolution, with its result or the text of its
// failure: StateSucceeded, StateFailed or StateReleased; StateUncertain when it is still unknown.
func (r Resolution) End() (State, []byte) {
	if r.state == StateAbsent {
		return StateUncertain, nil
	}
	return r.state, r.data
}

// unresolvedError is ErrUncertain of a key that was asked about in vain: unlike one that
// nobody asks about, asking again may help. The cause is about the question, not the key: a
// Resolve that failed for good, or whose outcome is unknown, does not make the key so.
type unresolvedError struct{ cause error }

var errStillUnknown = errors.New("still unknown")

func (e *unresolvedError) Error() string { return ErrUncertain.Error() + ": " + e.cause.Error() }

// Is implements the interface of errors.Is.
func (e *unresolvedError) Is(target error) bool {
	switch target {
	case ErrUncertain:
		return true
	case ErrInFlight, ErrMismatch, ErrUnknown, ErrLeaseLost, ErrClosed, ErrNoResult, ErrUnreadable:
		return false
	}
	return errors.Is(e.cause, target)
}

// As implements the interface of errors.As.
func (e *unresolvedError) As(target any) bool {
	switch target.(type) {
	case **permanentError, **FailedError, **InputError, **refusedError, **foreignError,
		**unresolvedError:
		return false
	}
	return errors.As(e.cause, target)
}

// resolve finds out about an uncertain key that c has taken over, and returns the claim for
// its caller: c itself when the effect is to run again.
//
// The key keeps its danger all the while. Should this process die, or the next attempt
// before it calls Danger, the key is uncertain again and is asked about again: the answer
// may have changed by then, if a request was still on its way.
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
	run, stop := c.keep(ctx, false)
	defer stop()
	returned := false
	defer func() {
		if !returned { // Resolve panicked, or called runtime.Goexit
			d.putBack(ctx, c)
		}
	}()
	rec := c.Record
	rec.State = StateUncertain
	var found Resolution
	err := context.Cause(run)
	if err == nil {
		found, err = d.cfg.Resolve(run, c.Key, rec)
	}
	returned = true

	ended := context.Cause(run)
	switch state, data := found.End(); {
	case err == nil && state == StateSucceeded:
		return d.foundEnd(ctx, c, Completion{Claim: c, Result: data})
	case err == nil && state == StateFailed:
		return d.foundEnd(ctx, c, Completion{Claim: c, Err: Permanent(errors.New(string(data)))})
	case ended != nil:
		// Lost, closed, or the caller has gone: ignore whatever else the answer says.
		d.putBack(ctx, c)
		return c.foundNothing(Unknown, unknown(ended))
	case err == nil && state == StateReleased:
		stop()
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

// putBack gives up a claim that was made to find out. Its key is uncertain again. Where that
// fails, the claim lapses, which does the same.
func (d *Deduper) putBack(ctx context.Context, c *Claim) {
	_ = d.conclude(ctx, Completion{Claim: c, Err: errReleased})
}

// foundEnd records how the earlier attempt has ended, and makes its duplicate.
func (d *Deduper) foundEnd(ctx context.Context, c *Claim, done Completion) *Claim {
	err := d.conclude(ctx, done)
	var change Finish
	c.change(&done, &d.cfg, &change)
	rec := Record{
		State: change.State, Attempt: c.Attempt, Fence: c.fence, Result: change.Result,
		NoResult:    change.NoResult,
		Fingerprint: c.Record.Fingerprint, Origin: c.Record.Origin, Label: c.Record.Label,
		Remaining: d.cfg.Window,
	}
	if done.Err != nil { // where no failures are kept the change is a release, but it has failed
		rec.State, rec.Result = StateFailed, failureText(done.Err)
	}
	switch {
	case err == nil, errors.Is(err, ErrNoResult):
	case c.Stored != nil && c.Stored.State.terminal(): // known to somebody else first
		rec = *c.Stored
	default:
		return c.foundNothing(Unknown, unknown(err))
	}
	return &Claim{
		Key: c.Key, Outcome: Duplicate, Observed: Duplicate, Attempt: rec.Attempt, Record: rec,
		Cause: causeOf(Duplicate, &c.message.origin, &rec, d.cfg.Window/2), d: d, id: c.id,
		message: c.message,
	}
}

// foundNothing is the answer of a claim that was made to find out, and found nothing out.
func (c *Claim) foundNothing(outcome Outcome, err error) *Claim {
	rec := c.Record
	rec.State = StateUncertain
	return &Claim{
		Key: c.Key, Outcome: outcome, Observed: outcome, Attempt: c.Attempt, Record: rec,
		d: c.d, id: c.id, message: c.message, err: err,
	}
}
