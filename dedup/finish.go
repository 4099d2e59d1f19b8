package dedup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup/internal/idtable"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// maxFailureText bounds the text of a stored failure.
const maxFailureText = 1 << 10

// Complete records that the effect has landed, with an optional result that duplicates
// get replayed byte for byte. Call it after the effect, and before acknowledging the
// message. A result larger than Config.ResultLimit is not kept: the key is recorded as
// done without it, and Complete answers [ErrNoResult].
//
// [ErrLeaseLost] means that the claim was no longer ours. The effect has landed, so it
// is recorded if nobody else's was (see Claim.Stored for what was found), but it may
// have happened twice. An error for which [OutcomeUnknown] is true means that the
// record could not be confirmed before the lease ended or ctx did: do not acknowledge;
// calling Complete again is harmless. Completing twice answers what the first call did.
// An [*InputError] says that the claim is nil or was not acquired, or has ended
// otherwise, or that ctx is nil.
//
// In Observe mode only an InputError is returned: nobody depends on the record.
func (c *Claim) Complete(ctx context.Context, result []byte) error {
	return finishOne(ctx, Completion{Claim: c, Result: result})
}

// Fail records a failure that no retry can fix. Duplicates get it replayed as a
// [*FailedError] with the text of cause, cut at 1 KiB. From a late owner it changes
// nothing and answers [ErrLeaseLost]. Errors are otherwise those of Complete.
func (c *Claim) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return &InputError{Field: "Cause", Reason: "is nil; a failure needs an error"}
	}
	return finishOne(ctx, Completion{Claim: c, Err: Permanent(cause)})
}

// Release gives the claim up without an effect: the key can be claimed again at once,
// and its attempt count and fence are kept for Config.Hold. After [Danger] the key becomes
// uncertain. To say that nothing has begun, end the claim with [Deduper.CompleteBatch] and
// a [NotBegun] error. From a late owner Release changes nothing and answers [ErrLeaseLost].
// It is tried a few times while the store cannot be asked, but not until the lease ends,
// because the end of the lease does the same. Errors are otherwise those of Complete.
func (c *Claim) Release(ctx context.Context) error {
	return finishOne(ctx, Completion{Claim: c, Err: errReleased})
}

var errReleased = errors.New("released")

// Arrays of batches that are over.
var (
	errorSlabs  slab.Pool[error]
	endingSlabs slab.Pool[ending]
	changeSlabs slab.Pool[Finish]
)

// CompleteBatch ends many claims and returns nil when everything was written as asked.
// Otherwise it returns one error per item, in order: the one that Complete, Fail or Release
// would have returned, and nil for an item that was written. It takes one round trip per
// 1024 items (on a Redis Cluster per node).
func (d *Deduper) CompleteBatch(ctx context.Context, done []Completion) []error {
	if err := d.check(ctx); err != nil {
		return slices.Repeat([]error{err}, len(done))
	}
	d.life.Hold()
	defer d.life.Leave()
	errs := errorSlabs.Get(len(done))
	d.finish(ctx, done, errs, d.sendChanges)
	return unlessNil(errs)
}

// unlessNil returns the errors of a batch, which are from errorSlabs, or nil when there is
// none among them.
func unlessNil(errs []error) []error {
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	errorSlabs.Put(errs)
	return nil
}

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
	return d.endOne(ctx, &done)
}

// endOne is finish for a single call.
func (d *Deduper) endOne(ctx context.Context, done *Completion) (err error) {
	change := make([]Finish, 1) // the store may keep it
	e := ending{change: &change[0]}
	if d.cfg.Mode == Observe {
		defer func() { err = forgiven(err) }()
	}
	if send, err := d.beginEnd(done, &e); !send {
		return err
	}
	e.claim.endings.Add(1)
	defer e.claim.endings.Add(-1)
	for try := 0; ; try++ {
		sent := d.cache.now()
		ans := d.ends.DoOne(ctx, change)
		if ans.Err == nil {
			return d.settle(&e, &ans, sent)
		}
		d.storeError(e.change.ID, ans.Err)
		if !passesSoon(ans.Err) || sleep(ctx, jitter(askBase, askAtMost, try)) != nil ||
			!d.worthTrying(&e, try+1) {
			return unknown(ans.Err)
		}
	}
}

func (d *Deduper) sendChanges(ctx context.Context, changes []Finish) []Answer {
	return inBatches(ctx, d.cfg.StoreTimeout, changes, d.store.Finish)
}

// ending is one claim on its way to its end.
type ending struct {
	index  int
	claim  *Claim
	change *Finish
	until  time.Duration // the end of the lease as it was when the end began, by Deduper.clock
}

// worthTrying reports whether to send an end without an answer once more. The effect has
// happened, so only the record stands between it and a second run. Sending continues until
// the lease ends, because then another owner may be at work. Renewals do not prolong it: a
// store that renews and cannot record would hold its caller forever. A release does no more
// than the end of the lease, and in Observe mode nobody is to wait.
func (d *Deduper) worthTrying(e *ending, tries int) bool {
	if (e.change.State == StateReleased || d.cfg.Mode == Observe) && tries >= askTimes {
		return false
	}
	return d.clock() < e.until
}

// finish writes the ends and fills errs. Items without an answer are sent again with the
// same token as long as they are worthTrying; then the answer stays unknown.
func (d *Deduper) finish(ctx context.Context, done []Completion, errs []error,
	send func(context.Context, []Finish) []Answer) {
	todo, changes := d.beginEnds(done, errs)
	begun, learnt := todo, len(todo) == 0
	defer func() {
		for i := range begun {
			begun[i].claim.endings.Add(-1)
		}
		if learnt {
			changeSlabs.Put(changes)
		}
		endingSlabs.Put(begun)
	}()
	batch := changes
	for try := 0; len(todo) > 0; try++ {
		var all bool
		todo, all = d.finishOnce(ctx, todo, batch, errs, send)
		learnt = all && try == 0 // else the store may be at work on the changes still
		if len(todo) == 0 || sleep(ctx, jitter(askBase, askAtMost, try)) != nil {
			break
		}
		todo = slices.DeleteFunc(todo, func(e ending) bool { return !d.worthTrying(&e, try+1) })
		batch = make([]Finish, len(todo))
		for n, e := range todo {
			batch[n] = *e.change
		}
	}
	if d.cfg.Mode == Observe {
		for i, err := range errs {
			errs[i] = forgiven(err)
		}
	}
}

// beginEnds makes the ends that are to be sent, with their changes, and answers the
// others.
func (d *Deduper) beginEnds(done []Completion, errs []error) (todo []ending, changes []Finish) {
	todo, changes = endingSlabs.Get(len(done)), changeSlabs.Get(len(done))
	n := 0
	seen := idtable.New(len(done))
	defer seen.Free()
	for i := range done {
		e := &todo[n]
		e.index, e.change = i, &changes[n]
		if send, err := d.beginEnd(&done[i], e); !send {
			errs[i], changes[n] = err, Finish{}
			continue
		}
		if _, twice := seen.Add((*[16]byte)(&e.change.ID), i); twice {
			errs[i] = &InputError{Field: "Completion",
				Reason: "has the key of an earlier item of its batch"}
			*e, changes[n] = ending{}, Finish{}
			continue
		}
		e.claim.endings.Add(1)
		n++
	}
	return todo[:n], changes[:n]
}

// forgiven leaves the caller's own mistakes: an observer fails nobody.
func forgiven(err error) error {
	var input *InputError
	if errors.As(err, &input) {
		return err
	}
	return nil
}

// finishOnce sends the changes of todo. It returns what has to be sent again, and whether
// all was answered.
func (d *Deduper) finishOnce(ctx context.Context, todo []ending, changes []Finish, errs []error,
	send func(context.Context, []Finish) []Answer) (again []ending, all bool) {
	sent := d.cache.now()
	answers := send(ctx, changes)
	all = true
	for n := range todo {
		e, ans := &todo[n], &answers[n]
		if ans.Err == nil {
			errs[e.index] = d.settle(e, ans, sent)
			continue
		}
		all = false
		d.storeError(e.change.ID, ans.Err)
		errs[e.index] = unknown(ans.Err)
		if passesSoon(ans.Err) {
			again = append(again, *e)
		}
	}
	d.recycle(answers)
	return again, all
}

// beginEnd checks one completion and makes the store's form of it in e. Without send,
// nothing is to be sent, and the error is the answer.
func (d *Deduper) beginEnd(item *Completion, e *ending) (send bool, err error) {
	c := item.Claim
	if c == nil || c.d != d {
		return false, &InputError{Field: "Claim", Reason: "is nil or of another Deduper"}
	}
	if c.Outcome != Acquired {
		return false, &InputError{Field: "Claim",
			Reason: fmt.Sprintf("is %v; only an acquired claim can be ended", c.Outcome)}
	}
	if err := c.checkUnused(item); err != nil {
		return false, err
	}
	c.change(item, &d.cfg, e.change)
	change := e.change
	if change.With != nil && change.State != StateSucceeded {
		return false, &InputError{Field: "Completion.With", Reason: "is set, and so is Err"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != StateAbsent {
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
	if change.State == StateSucceeded {
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
			change.Landed = landed || !c.fenceRead.Load()
		}
	}
	e.claim, e.until = c, c.validUntil
	return true, nil
}

// change fills the zero change with what the store has to write for the completion. It does
// so field by field: a literal would be made elsewhere first, and then copied.
func (c *Claim) change(item *Completion, cfg *Config, change *Finish) {
	change.ID, change.Token, change.Fence, change.Attempt = c.id, c.token, c.fence, c.Attempt
	change.Lease, change.Hold, change.Window = cfg.LeaseTTL, cfg.Hold, cfg.Window
	if m := c.message; m != &noMessage {
		change.Fingerprint, change.Origin, change.Label = m.fingerprint, m.origin, m.label
	}
	change.With, change.SeenOnly = item.With, cfg.SeenOnly
	switch {
	case item.Unused:
		change.State, change.Unused = StateReleased, true
	case item.Err == nil:
		change.State = StateSucceeded
		change.NoResult = item.noResult || len(item.Result) > cfg.ResultLimit ||
			cfg.SeenOnly && len(item.Result) > 0
		if !change.NoResult && !cfg.SeenOnly {
			// A copy: the batch it is sent in may outlive a canceled call.
			change.Result = bytes.Clone(item.Result)
		}
	case IsPermanent(item.Err) && c.d.failures:
		change.State, change.Result = StateFailed, failureText(item.Err)
	default:
		change.State, change.NotBegun = StateReleased, isNotBegun(item.Err)
	}
}

// failureText is the text of err, cut between two characters.
func failureText(err error) []byte {
	text := err.Error()
	if len(text) <= maxFailureText {
		return []byte(text)
	}
	end := maxFailureText
	for end > maxFailureText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return []byte(text[:end])
}

// settle draws the conclusions from an answered end.
func (d *Deduper) settle(e *ending, ans *Answer, sent stamp) error {
	var err error
	switch {
	case ans.Held && ans.Written && e.change.NoResult:
		err = ErrNoResult
	case ans.Held && ans.Written:
	default:
		err = ErrLeaseLost
	}
	d.noteEnd(e.change, ans, sent)
	e.claim.end(e.change.State, ans, err)
	if errors.Is(err, ErrLeaseLost) {
		d.tellLost(e.claim, "another owner was found at the end")
	}
	return err
}

// noteEnd tells this process of an end that the store has answered.
func (d *Deduper) noteEnd(change *Finish, ans *Answer, sent stamp) {
	if ans.Written {
		d.cache.done(change, &ans.Record, sent)
		if ended := d.cfg.Observer.Ended; ended != nil {
			ended(Event{ID: change.ID, State: change.State, Attempt: change.Attempt})
		}
		if ans.Record.State == StateUncertain {
			fire(d.cfg.Observer.Uncertain,
				Event{ID: change.ID, Outcome: Uncertain, State: change.State,
					Attempt: change.Attempt})
		}
	}
	d.ended(change.ID)
}

// end notes how the claim ended and stops its renewal.
func (c *Claim) end(state State, ans *Answer, err error) {
	c.mu.Lock()
	c.ended, c.err = state, err
	if errors.Is(err, ErrLeaseLost) {
		rec := ans.Record
		c.Stored = &rec
	}
	kept := c.kept
	c.mu.Unlock()
	if kept != nil {
		c.d.renewals.drop(kept)
	}
}

func (d *Deduper) tellLost(c *Claim, why string) {
	fire(d.cfg.Observer.LeaseLost, Event{ID: c.id, Attempt: c.Attempt, Err: ErrLeaseLost})
	d.cfg.Logger.Warn("dedup: lease lost", idAttr(c.id), "attempt", c.Attempt, "why", why)
}
