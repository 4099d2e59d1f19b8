package dedup

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Claim is the answer to one claim attempt. When Outcome is [Acquired] it is also the
// right to run the effect: do so, then call Complete, Fail or Release, or let it lapse.
//
// The exported fields do not change, but for Stored, once the Claim has been returned.
// Its methods are safe for concurrent use.
type Claim struct {
	// Key as it was asked for.
	Key string
	// Outcome says what to do: see the constants.
	Outcome Outcome
	// Observed is what Enforce would have answered, in Observe mode; it equals Outcome
	// in Enforce mode. It is Unknown for a claim that runs thanks to FailOpen.
	Observed Outcome
	// Attempt counts the claims of this key, from 1.
	Attempt int
	// Record is what the store holds of the key. A Duplicate has its result there, and a
	// claim InFlight the rest of its lease, as Remaining. Its Fence is zero when Outcome is
	// Acquired: there, Fence is a method, because reading it has a consequence.
	Record Record
	// Cause of a Duplicate or Mismatch.
	Cause Cause
	// Alias is the first Claim of the same key in the same batch. This one shares its fate:
	// it is InFlight as long as the first runs, and done when the first is. Do not run it;
	// it cannot be ended.
	Alias *Claim
	// Stored is the record that was found when Complete, Fail or Release answered
	// ErrLeaseLost; nil before, and when the store was not asked because the loss was
	// known already.
	Stored *Record

	d       *Deduper
	id      ID
	token   Token
	message *message
	fence   uint64
	// err is why the claim is Unknown or Uncertain. For an acquired claim it is the error
	// of its end, and guarded by mu.
	err error

	endings   atomic.Int32 // calls that are ending it right now
	fenceRead atomic.Bool
	landed    atomic.Bool
	declared  atomic.Bool // Danger is on record

	firstOnly     bool // as it was asked for
	takeUncertain bool // the same
	shadow        bool // runs without a claim: Observe, or FailOpen
	finding       bool // has taken an uncertain key over, and is to find out

	// guarded by mu
	lost       bool  // canceled for ErrLeaseLost
	completing bool  // Complete was called before it was lost
	ended      State // what it ended as; StateAbsent while open
	mu         sync.Mutex
	validUntil time.Duration // by Deduper.clock
	kept       *kept
	steps      *steps // made when there is one
}

// Claim asks for the right to run the effect of key, in one round trip that it shares
// with concurrent callers. Look at Outcome of the returned Claim; [Claim.Err] turns it
// into an error.
//
// The error is an [*InputError] for a bad key, scope or label, [ErrClosed], or one for
// which [OutcomeUnknown] is true when the store could not be asked or ctx ended; the
// Claim is nil then. A canceled call leaves no claim behind for longer than the
// release of it takes.
//
// An uncertain key is asked about first when there is a Config.Resolve: the call then
// takes as long as that does. Its answer is Acquired when the effect is to run again,
// Duplicate when it has happened or failed, and otherwise Uncertain.
//
// The claim lasts for Config.LeaseTTL; [Claim.KeepAlive] renews it.
func (d *Deduper) Claim(ctx context.Context, key string, opts ...Option) (*Claim, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	r := newRequest(key, opts)
	var req ClaimRequest
	if err := d.prepare(&r, &req); err != nil {
		return nil, err
	}
	if !d.life.Enter() {
		return nil, ErrClosed
	}
	defer d.life.Leave()
	return d.claim(ctx, r.Key, &req)
}

// claim is Claim for a call that has been checked and counted.
func (d *Deduper) claim(ctx context.Context, key string, req *ClaimRequest) (*Claim, error) {
	req.TakeUncertain = d.cfg.Resolve != nil && d.cfg.Mode != Observe && !req.FirstOnly
	var c *Claim
	if d.cfg.Wait == 0 {
		c = d.claimOnce(ctx, key, req)
	} else {
		c = d.claimWaiting(ctx, key, req)
	}
	if c.finding {
		c = d.resolve(ctx, c)
	}
	if c.Outcome == Unknown {
		return nil, c.Err()
	}
	return c, nil
}

// Err is nil when Outcome is Acquired or a Duplicate of a success. Otherwise it is
// [ErrInFlight], [ErrMismatch], [ErrUncertain], an error for which [OutcomeUnknown] is
// true, or the [*FailedError] that a Duplicate replays.
func (c *Claim) Err() error {
	switch c.Outcome {
	case Acquired:
		return nil
	case Duplicate:
		if c.Record.State == StateFailed {
			return &FailedError{Message: string(c.Record.Result), Attempt: c.Record.Attempt}
		}
		return nil
	case InFlight:
		return ErrInFlight
	case Mismatch:
		return ErrMismatch
	case Uncertain:
		if c.err != nil {
			return c.err
		}
		return ErrUncertain
	}
	if c.err != nil {
		return c.err
	}
	return ErrUnknown
}

// Fence returns the fencing number of the claim: it only grows per key. Hand it to an
// effect that can refuse a smaller one. Whoever reads it may be refused, so from then
// on a nil return of the handler no longer proves that the effect landed once the lease
// is lost; see [Landed]. It is zero for a claim that is not acquired, or runs without one
// (Observe mode, FailOpen).
func (c *Claim) Fence() uint64 {
	if c.Outcome != Acquired || c.shadow {
		return 0
	}
	c.fenceRead.Store(true)
	return c.fence
}

// newClaim makes the caller's Claim from the store's answer, applies Observe and FailOpen,
// and tells the observer.
func (d *Deduper) newClaim(ctx context.Context, key string, req *ClaimRequest,
	a asked, cached bool) *Claim {
	c := &Claim{Key: key, d: d}
	c.ask(req, req.message())
	d.fill(ctx, c, a.answer, a.validUntil, cached)
	return c
}

// ask notes what c was asked for. It keeps nothing that lies in req.
func (c *Claim) ask(req *ClaimRequest, m *message) {
	c.id, c.token, c.message = req.ID, req.Token, m
	c.firstOnly, c.takeUncertain = req.FirstOnly, req.TakeUncertain
}

// fill is newClaim into a claim that knows what it was asked for, and nothing else. It
// keeps nothing that lies in ans.
func (d *Deduper) fill(ctx context.Context, c *Claim, ans *Answer, validUntil time.Duration,
	cached bool) {
	c.Outcome, c.Observed = ans.Outcome, ans.Outcome
	c.Attempt, c.Record = ans.Record.Attempt, ans.Record
	c.Cause = causeOf(ans.Outcome, &c.message.origin, &c.Record, d.cfg.Window/2)
	c.validUntil = validUntil
	if ans.Err != nil {
		c.Outcome, c.Observed, c.err = Unknown, Unknown, unknown(ans.Err)
	}
	if c.Outcome == Acquired {
		c.fence, c.Record.Fence = ans.Record.Fence, 0
		c.finding = c.takeUncertain && ans.Record.Danger
	}
	if c.Outcome == Uncertain {
		c.fire(d.cfg.Observer.Uncertain, cached)
	}
	if !c.finding { // else it is answered when it has found out
		c.fire(d.cfg.Observer.Claimed, cached)
	}
	d.overrule(ctx, c, cached)
}

// overrule lets a claim run that was not won, where the configuration says so. FailOpen
// is for a store that cannot be asked, not for a caller that did not wait for it.
func (d *Deduper) overrule(ctx context.Context, c *Claim, cached bool) {
	var hook func(Event)
	switch {
	case c.Outcome == Acquired:
		return
	case c.left():
		return // nobody would be held back: it is asked for again, and is claimed then
	case d.cfg.Mode == Observe:
		hook = d.cfg.Observer.WouldSkip
	case c.Outcome == Unknown && d.cfg.Mode == FailOpen && passes(c.err) && ctx.Err() == nil:
		hook = d.cfg.Observer.FailedOpen
	default:
		return
	}
	c.fire(hook, cached)
	c.Outcome, c.shadow, c.err = Acquired, true, nil
	c.Attempt = max(c.Attempt, 1)
}

// left reports whether the key was left to others because the request had FirstOnly.
func (c *Claim) left() bool { return left(c.firstOnly, c.Outcome, &c.Record) }

// fire is fire with the event of the claim, which is made for a hook only.
func (c *Claim) fire(hook func(Event), cached bool) {
	if hook != nil {
		hook(c.event(cached))
	}
}

func (c *Claim) event(cached bool) Event {
	return Event{
		ID: c.id, Outcome: c.Outcome, Cause: c.Cause, Age: c.Record.Age,
		Attempt: c.Record.Attempt, Cached: cached, Err: c.err,
	}
}
