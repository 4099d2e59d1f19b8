package dedup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/lazyctx"
	"github.com/onceward/onceward/dedup/internal/pause"
)

// maxFailureText bounds the text of a stored failure.
const maxFailureText = 1 << 10

// Complete records that the effect has happened, with an optional result that duplicates get
// byte for byte. Call it after the effect, and before acknowledging the message. A result larger
// than Config.ResultLimit is not kept: the key is recorded without it, and the error is
// [ErrNoResult].
//
// [ErrLeaseLost] means that the claim was no longer ours. Claim.Stored shows what was found
// instead, and the effect may have happened twice. An error for which [OutcomeUnknown] is true
// means that the record was not confirmed before the lease or ctx ended: do not acknowledge. A
// claim that is nil, was not acquired, or has ended otherwise causes an [*InputError], the only
// error in Observe mode. Calling Complete again is harmless, and returns what the first call did.
func (c *Claim) Complete(ctx context.Context, result []byte) error {
	return finishOne(ctx, Completion{Claim: c, Result: result})
}

// Fail records a failure that no retry can fix. Duplicates get a [*FailedError] with the text of
// cause, which must not be nil. From a late owner it changes nothing and answers [ErrLeaseLost].
// Other errors are those of Complete.
func (c *Claim) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return &InputError{Field: "Cause", Reason: "is nil; a failure needs an error"}
	}
	return finishOne(ctx, Completion{Claim: c, Err: Permanent(cause)})
}

// Release gives the claim up without an effect. The key can be claimed again at once, and its
// attempt count and fence are kept for Config.Hold. After [MarkIrreversible] the key becomes
// uncertain: to say that nothing has begun, use [Deduper.CompleteBatch] with a [NotStarted]
// error. From a late owner Release changes nothing and answers [ErrLeaseLost]. It gives up after
// four tries: the end of the lease does the same. Other errors are those of Complete.
func (c *Claim) Release(ctx context.Context) error {
	return finishOne(ctx, Completion{Claim: c, Err: errReleased})
}

var errReleased = errors.New("released")

func finishOne(ctx context.Context, done Completion) error {
	if done.Claim == nil || done.Claim.d == nil {
		return &InputError{Field: "Claim", Reason: "is nil or was not returned by a Deduper"}
	}
	d := done.Claim.d
	if err := d.check(ctx); err != nil {
		return err
	}
	d.life.Hold()
	defer d.life.Leave()
	return d.endOne(ctx, &done, new([1]driver.Finish))
}

// endOne does the work of finish for a single call. change is zero; the store may keep it.
func (d *Deduper) endOne(ctx context.Context, done *Completion,
	change *[1]driver.Finish) (err error) {
	e := completion{change: &change[0]}
	if d.cfg.Mode == Observe {
		defer func() { err = forgiven(err) }()
	}
	if send, err := d.beginEnd(done, &e); !send {
		return err
	}
	e.claim.finishing.Add(1)
	defer e.claim.finishing.Add(-1)
	for try := 0; ; try++ {
		sent := d.cache.now()
		ans := d.askEnd(ctx, change)
		if ans.Err == nil {
			err := d.settle(&e, &ans, sent)
			if e.kept != nil {
				d.renewals.drop(e.kept)
			}
			return err
		}
		d.storeError(e.change.ID, ans.Err)
		if !passesSoon(ans.Err) || pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) != nil ||
			!d.worthTrying(&e, try+1) {
			return unknown(ans.Err)
		}
		change = (*[1]driver.Finish)(again(change[:]))
		e.change = &change[0]
	}
}

// again returns a copy of change to send once more, as the store may still have the first. The copy
// may not overwrite: the key can have another owner by the time that it is executed.
func again(change []driver.Finish) []driver.Finish {
	change = slices.Clone(change)
	for i := range change {
		change[i].MayOverwrite = false
	}
	return change
}

// completion is one claim on its way to its end.
type completion struct {
	index  int
	claim  *Claim
	change *driver.Finish
	until  time.Duration // the end of the lease as it was when the end began, by Deduper.clock
	kept   *keptClaim    // of a claim that has ended, to be dropped
}

// worthTrying reports whether to send an end without an answer once more. The effect has
// happened, so only the record stands between it and a second run. Sending continues until
// the lease ends, because then another owner may be at work. Renewals do not prolong that time: a
// store that renews but cannot record would hold its caller forever. A release is sent at most
// askTimes times, because the end of the lease does the same. So is every end in Observe mode,
// where nobody is to wait.
func (d *Deduper) worthTrying(e *completion, tries int) bool {
	if (e.change.State == driver.StateReleased || d.cfg.Mode == Observe) && tries >= askTimes {
		return false
	}
	return d.clock() < e.until
}

// beginEnd checks one completion and makes the store's form of it in e. If send is false,
// nothing is to be sent, and err is the answer.
func (d *Deduper) beginEnd(item *Completion, e *completion) (send bool, err error) {
	c := item.Claim
	if c == nil || c.d != d {
		return false, &InputError{Field: "Claim", Reason: "is nil or of another Deduper"}
	}
	if c.Outcome != Acquired {
		return false, &InputError{Field: "Claim",
			Reason: fmt.Sprintf("is %v; only an acquired claim can be ended", c.Outcome)}
	}
	if err := c.checkNotAttempted(item); err != nil {
		return false, err
	}
	c.change(item, &d.cfg, e.change)
	change := e.change
	if change.With != nil && change.State != driver.StateSucceeded {
		return false, &InputError{Field: "Completion.With", Reason: "is set, and so is Err"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != driver.StateAbsent {
		if c.ended != change.State {
			return false, &InputError{Field: "Claim",
				Reason: fmt.Sprintf("has already ended as %v", c.ended)}
		}
		return false, c.err
	}
	if c.shadow {
		c.ended = change.State
		if c.kept != nil {
			c.d.renewals.drop(c.kept)
		}
		return false, nil
	}
	if change.State == driver.StateSucceeded {
		landed := c.landed.Load()
		if c.lost && !landed && !item.InTime && !c.completing && item.With == nil {
			// The handler may have returned nil because it was canceled. Without an
			// effect, "succeeded" would lose the message, whoever owns the key now.
			c.ended, c.err = change.State, ErrLeaseLost
			return false, ErrLeaseLost
		}
		change.Until = d.at(c.validUntil)
		if item.With == nil {
			// The first call counts: a Complete that met an outage until the lease had ended
			// is still true when it is called again. Completion.With has not happened yet,
			// and only the claim's owner may write it.
			c.completing = true
			change.EffectApplied = landed || !c.fenceRead.Load()
		}
	}
	e.claim, e.until = c, c.validUntil
	return true, nil
}

// change fills the zero change with what the store has to write for the completion. It does
// so field by field: a literal would be made elsewhere first, and then copied.
func (c *Claim) change(item *Completion, cfg *Config, change *driver.Finish) {
	change.ID, change.Token, change.Fence, change.Attempt = c.id, c.token, c.fence, c.Attempt
	change.Lease, change.Hold, change.Window = cfg.LeaseTTL, cfg.Hold, c.window
	if m := c.message; m != &noMessage {
		change.Fingerprint, change.Origin, change.Label = m.fingerprint, m.origin, m.label
	}
	change.With = item.With
	change.Irreversible = c.Record.Irreversible || c.declared.Load()
	switch {
	case item.NotAttempted:
		change.State, change.NotAttempted = driver.StateReleased, true
	case item.Err == nil:
		change.State = driver.StateSucceeded
		change.NoResult = item.noResult || len(item.Result) > cfg.ResultLimit ||
			c.noResult && len(item.Result) > 0
		if !change.NoResult && !c.noResult {
			// Copy the result: the batch that sends it may outlive a canceled call.
			change.Result = bytes.Clone(item.Result)
		}
		change.MayOverwrite = c.noResult && !c.takesOver && !change.Irreversible
	case IsPermanent(item.Err) && c.d.failures:
		change.State, change.Result = driver.StateFailed, failureText(item.Err)
	default:
		change.State, change.NotStarted = driver.StateReleased, isNotStarted(item.Err)
	}
}

// failureText returns the text of err, cut to what is stored.
func failureText(err error) []byte { return cutFailure(err.Error()) }

// cutFailure cuts the text of a failure between two characters.
func cutFailure(text string) []byte {
	if len(text) <= maxFailureText {
		return []byte(text)
	}
	end := maxFailureText
	for end > maxFailureText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return []byte(text[:end])
}

// settle handles the answer to an end. The caller then drops e.kept from the renewals.
func (d *Deduper) settle(e *completion, ans *driver.Answer, sent stamp) error {
	var err error
	switch {
	case ans.Held && ans.Written && (e.change.NoResult || ans.Record.NoResult):
		err = ErrNoResult
	case ans.Held && ans.Written:
	default:
		err = ErrLeaseLost
	}
	d.noteEnd(e.change, ans, sent)
	e.kept = e.claim.end(e.change.State, ans, err)
	if errors.Is(err, ErrLeaseLost) {
		d.reportLost(e.claim, "another owner was found at the end")
	}
	return err
}

// noteEnd tells the cache, the observer and the waiters of an end that the store has answered.
func (d *Deduper) noteEnd(change *driver.Finish, ans *driver.Answer, sent stamp) {
	if ans.Written {
		d.cache.done(change, &ans.Record, sent)
		if ended := d.cfg.Observer.Ended; ended != nil {
			ended(Event{ID: change.ID, State: change.State, Attempt: change.Attempt})
		}
		if ans.Record.State == driver.StateUncertain {
			fire(d.cfg.Observer.Uncertain,
				Event{ID: change.ID, Outcome: Uncertain, State: change.State,
					Attempt: change.Attempt})
		}
	}
	d.endedBy(change.ID, ans)
}

// end notes how the claim ended, and returns its keptClaim, which the caller has to drop.
func (c *Claim) end(state driver.State, ans *driver.Answer, err error) *keptClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.err = state, err
	if errors.Is(err, ErrLeaseLost) {
		rec := ans.Record
		c.Stored = &rec
	}
	return c.kept
}

// conclude ends a claim even though its caller may be gone.
func (d *Deduper) conclude(ctx context.Context, done Completion) error {
	after := d.afterEffect(ctx)
	defer after.End(context.Canceled)
	return d.endOne(after, &done, new([1]driver.Finish))
}

// afterEffect returns a context for what follows an effect. It does not end with ctx, because the
// effect has happened and must be recorded. It lasts for one lease: a later write would not count.
func (d *Deduper) afterEffect(ctx context.Context) *lazyctx.Timed {
	after := new(lazyctx.Timed)
	d.beginAfter(ctx, after)
	return after
}

// beginAfter sets after, which is zero, to the context that afterEffect returns.
func (d *Deduper) beginAfter(ctx context.Context, after *lazyctx.Timed) {
	after.Parent, after.Detached = ctx, true
	after.Until = time.Now().Add(d.cfg.LeaseTTL)
}

// Completion is one item of [Deduper.CompleteBatch].
type Completion struct {
	Claim  *Claim // Claim that ends.
	Result []byte // Result to keep, when Err is nil.
	// Err of the handler: nil completes, one for which IsPermanent is true fails, any other
	// releases the claim; see [NotStarted] for one that has called [MarkIrreversible].
	Err error
	// With is for the store that offers it, and is written together with the record or not at all.
	// Any other store refuses the item with an [*InputError] and writes nothing. Needs a nil Err.
	With any
	// NotAttempted says that the handler never began the message, or was cut short through no fault
	// of the message. The claim is released, whatever Err is, and does not count as an attempt. A
	// key that was irreversible before is uncertain again. Together with a Result, a With, or a
	// MarkIrreversible by this attempt, it causes an [*InputError].
	NotAttempted bool
	// InTime says that the handler had returned nil before its claim was lost. Without it a loss
	// before this call makes the effect count as canceled. Needs a nil Err.
	InTime bool
	// noResult marks a result that could not be encoded.
	noResult bool
}

// checkNotAttempted refuses what contradicts Completion.NotAttempted.
func (c *Claim) checkNotAttempted(item *Completion) error {
	if !item.NotAttempted {
		return nil
	}
	var reason string
	switch {
	case item.Result != nil:
		reason = "is set, and so is Result"
	case item.With != nil:
		reason = "is set, and so is With"
	case c.declared.Load():
		reason = "is set, and the attempt has called MarkIrreversible"
	default:
		return nil
	}
	return &InputError{Field: "Completion.NotAttempted", Reason: reason}
}
