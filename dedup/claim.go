package dedup

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Claim is the answer to one claim attempt. When Outcome is [Acquired] it is also the right to
// run the effect: do so, then call Complete, Fail or Release, or let it lapse. Of its exported
// fields only Stored changes.
type Claim struct {
	Key     string         // Key as it was asked for.
	Outcome driver.Outcome // Outcome says what to do: see the constants.
	// Observed is what Enforce would have answered, in Observe mode, and equals Outcome in Enforce
	// mode. It is Unknown for a claim that runs thanks to FailOpen.
	Observed driver.Outcome
	Attempt  int // Attempt counts the claims of this key, from 1.
	// Record is what the store holds of the key: for a Duplicate its result, for InFlight the
	// Remaining lease. Its Fence is zero when Acquired: call the method Fence instead.
	Record Record
	Cause  driver.Cause // Cause of a Duplicate, InFlight or Mismatch.
	// Alias is the first Claim of the same key in its batch; see [Deduper.ClaimBatch].
	Alias *Claim
	// Stored is the record that was found when Complete, Fail or Release answered ErrLeaseLost. It
	// is nil before, and when the loss was known without asking the store.
	Stored *Record

	d       *Deduper
	id      driver.ID
	token   driver.Token
	message *message
	fence   uint64
	window  time.Duration
	// err is why the claim is Unknown or Uncertain. For an acquired claim it is the error
	// of its end, and guarded by mu.
	err error

	finishing atomic.Int32 // calls that are ending it right now
	fenceRead atomic.Bool
	landed    atomic.Bool
	declared  atomic.Bool // it is on record as irreversible
	lossTold  atomic.Bool // that the lease is lost was reported

	onlyNew       bool // as it was asked for
	takeUncertain bool // the same
	noResult      bool // the same
	takesOver     bool // the same: TakeOverOlderGeneration
	shadow        bool // runs without a claim: Observe, or FailOpen
	finding       bool // has taken over an uncertain key, which is to be resolved
	cancelled     bool // of a claim that others share: the context of its own caller had ended

	// guarded by mu
	lost       bool         // canceled for ErrLeaseLost
	completing bool         // Complete was called before it was lost
	ended      driver.State // what it ended as; StateAbsent while open
	mu         sync.Mutex
	validUntil time.Duration // by Deduper.clock
	kept       *keptClaim
	room       *keptRoom // where its batch makes kept, or nil. Not guarded
	steps      *steps    // made with the first step

	running *running // for Do
}

// Err is nil when Outcome is Acquired or a Duplicate of a success. Otherwise it is
// [ErrInFlight], [ErrMismatch], [ErrUncertain], an error for which [OutcomeUnknown] is true, or
// the [*FailedError] that a Duplicate replays.
func (c *Claim) Err() error {
	switch c.Outcome {
	case Acquired:
		return nil
	case Duplicate:
		if c.Record.State == driver.StateFailed {
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

// Fence returns the fencing number of the claim, which only grows per key. Hand it to an effect
// that can refuse a smaller one. Once the number has been read, a nil return of the handler no
// longer proves the effect if the lease is lost: see [EffectApplied]. It is zero if the claim is
// not acquired, or the effect runs without a claim (Observe mode, FailOpen).
func (c *Claim) Fence() uint64 {
	if c.Outcome != Acquired || c.shadow {
		return 0
	}
	c.fenceRead.Store(true)
	return c.fence
}

// newClaim makes the caller's Claim from an answer that is known without the store, applies
// Observe and FailOpen, and tells the observer.
func (d *Deduper) newClaim(ctx context.Context, key string, req *driver.ClaimRequest,
	ans *driver.Answer) *Claim {
	c := &Claim{Key: key, d: d}
	c.ask(req, messageOf(req))
	d.fill(ctx, c, ans, 0, true)
	return c
}

// ask notes what c was asked for. It keeps no pointer to req.
func (c *Claim) ask(req *driver.ClaimRequest, m *message) {
	c.id, c.token, c.message, c.window = req.ID, req.Token, m, req.Window
	c.onlyNew, c.takeUncertain = req.OnlyNew, req.TakeUncertain
	c.noResult, c.takesOver = req.NoResult, req.TakeOverOlderGeneration
}

// fill does the work of newClaim for a claim that has only noted what it was asked for. It
// keeps no pointer to ans.
func (d *Deduper) fill(ctx context.Context, c *Claim, ans *driver.Answer, validUntil time.Duration,
	cached bool) {
	c.Outcome, c.Observed = ans.Outcome, ans.Outcome
	c.Attempt, c.Record = ans.Record.Attempt, ans.Record
	c.Cause = causeOf(ans.Outcome, &c.message.origin, &c.Record, c.window/2)
	c.validUntil = validUntil
	if ans.Err != nil {
		c.Outcome, c.Observed, c.err = Unknown, Unknown, unknown(ans.Err)
	}
	if c.Outcome == Acquired {
		c.fence, c.Record.Fence = ans.Record.Fence, 0
		c.finding = c.takeUncertain && ans.Record.Irreversible
	}
	if c.Outcome == Uncertain {
		c.fire(d.cfg.Observer.Uncertain, cached)
	}
	if !c.finding { // else it is answered when it has found out
		c.fire(d.cfg.Observer.Claimed, cached)
	}
	d.overrule(ctx, c, cached)
}

// overrule lets a claim that was not won run anyway, where the configuration says so. FailOpen
// is for a store that cannot be asked, not for a caller that left before the answer.
func (d *Deduper) overrule(ctx context.Context, c *Claim, cached bool) {
	var hook func(Event)
	switch {
	case c.Outcome == Acquired:
		return
	case c.left():
		return // Enforce would not skip it: the caller asks again, and claims the key then
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

// left reports whether the key was left to others because the request had OnlyNew.
func (c *Claim) left() bool { return left(c.onlyNew, c.Outcome, &c.Record) }

// fire calls hook, if there is one, with the event of the claim.
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

// Attempt is what a handler learns from [FromContext] about its claim.
type Attempt struct {
	Key    string // Key as it was claimed.
	Number int    // Number counts the claims of the key, from 1, also those whose process died.

	claim *Claim
}

type attemptKey struct{}

// FromContext returns the attempt under ctx; false if ctx has none or is nil.
func FromContext(ctx context.Context) (*Attempt, bool) {
	if ctx == nil {
		return nil, false
	}
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	return a, ok
}

// Fence returns the fencing number of the attempt; see [Claim.Fence].
func (a *Attempt) Fence() uint64 { return a.claim.Fence() }

// DownstreamKey derives an idempotency key for a call that the effect makes: 22 characters of
// base64url. It is the same on every attempt, different for every purpose, and does not reveal
// the original key. Name the purpose: DownstreamKey("stripe", "charge").
func (a *Attempt) DownstreamKey(purpose ...string) string {
	return a.claim.id.DownstreamKey(purpose...)
}

// EffectApplied says that the effect of the attempt under ctx has happened, even if the lease is
// lost. Without it, a nil return after a lost lease counts as an effect only if two things hold:
// the handler never read its fence, which a downstream may have refused, and its context was not
// yet canceled. EffectApplied returns false outside an attempt.
func EffectApplied(ctx context.Context) bool {
	a, ok := FromContext(ctx)
	if ok {
		a.claim.landed.Store(true)
	}
	return ok
}

// attemptOf returns what a handler learns of its claim.
func attemptOf(c *Claim) Attempt { return Attempt{Key: c.Key, Number: c.Attempt, claim: c} }

// shared returns the answer for another caller of a key, once the first caller's claim attempt is
// known. It is the same answer, except that only one of them may run the effect.
func shared(first *Claim, req *driver.ClaimRequest) driver.Answer {
	if first.err != nil {
		return driver.Answer{Err: first.err}
	}
	ans := cloneAnswer(&driver.Answer{Outcome: first.Observed, Record: first.Record})
	bound := first.Record.Fingerprint
	if first.Observed == Acquired || first.Observed == Unknown { // Unknown here: FailOpen
		ans.Outcome, bound = InFlight, first.message.fingerprint
		ans.Record.State = driver.StateInProgress
		ans.Record.Origin, ans.Record.Fingerprint = first.message.origin, bound
		ans.Record.Remaining = req.Lease
	}
	if bound.Conflicts(req.Fingerprint) {
		ans.Outcome = Mismatch
	} else if ans.Outcome == Mismatch {
		// The first request did not match the record, but this request may match it.
		ans.Outcome = outcomeOf(first.Record)
	}
	return ans
}

// outcomeOf returns what a record means to a caller whose fingerprint agrees with it.
func outcomeOf(rec Record) driver.Outcome {
	switch {
	case terminal(rec.State):
		return Duplicate
	case rec.State == driver.StateUncertain:
		return Uncertain
	case rec.State == driver.StateInProgress && rec.Remaining > 0:
		return InFlight
	}
	return Unknown
}
