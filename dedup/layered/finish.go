package layered

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Finish implements [driver.Store]. Success costs one round trip to cold, and then one to hot. It
// costs one more to hot, ahead of these, for Mark and for a handler that has read its fence.
// Releases and failures are in hot alone.
func (l *layers) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	f := &finishing{l: l, ctx: ctx, changes: changes, answers: make([]driver.Answer, len(changes))}
	f.plan()
	f.claimMarks()
	f.holdUnlanded()
	f.hotAlone()
	f.hotFirst()
	f.coldFirst()
	f.hotLast()
	return f.answers
}

// finishing is one Finish under way. Its lists hold indexes of changes; an item that has
// its answer is in none of them.
type finishing struct {
	l       *layers
	ctx     context.Context //nolint:containedctx // of one call, and no longer than it
	changes []driver.Finish
	answers []driver.Answer

	alone    []int // released or failed
	unlanded []int // succeeded, but only if the claim is still held
	marks    []int // by somebody who never had a claim
	early    []int // succeeded: sent to cold less than a lease after the key was written to hot
	late     []int // succeeded: perhaps sent to cold later than that
	last     []driver.Finish
	lastAt   []int // the change of each of last; negative if its answer changes nothing
}

// plan sorts the changes into the lists, and refuses what makes no sense before anything is
// written.
func (f *finishing) plan() {
	for i := range f.changes {
		c := &f.changes[i]
		if err := check(c); err != nil {
			f.answers[i].Err = err
			continue
		}
		switch {
		case c.State != driver.StateSucceeded:
			f.alone = append(f.alone, i)
		case c.Fence == 0 && c.EffectApplied:
			f.marks = append(f.marks, i)
		case c.Fence == 0 || past(c.Until):
			f.late = append(f.late, i)
		case !c.EffectApplied:
			f.unlanded = append(f.unlanded, i)
		default:
			f.early = append(f.early, i)
		}
	}
}

// check refuses an end that makes no sense, and one that is to be written together with something
// else: there are two stores, and no transaction spans both.
func check(c *driver.Finish) error {
	if c.With != nil {
		return &driver.InputError{Field: "Completion.With",
			Reason: fmt.Sprintf("is a %T, of which this store knows nothing", c.With)}
	}
	return c.Check()
}

// past reports whether t is over by the monotonic or the wall clock of this machine. The monotonic
// clock stands still while the machine is suspended, and hot forgets meanwhile.
func past(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// pick copies the changes at items, and lets edit change the copies.
func (f *finishing) pick(items []int, edit func(c *driver.Finish)) []driver.Finish {
	picked := make([]driver.Finish, len(items))
	for n, i := range items {
		picked[n] = f.changes[i]
		if edit != nil {
			edit(&picked[n])
		}
	}
	return picked
}

// claimMarks claims, in hot, keys that are marked without a claim. Otherwise, when the process
// dies right after cold has the mark, neither a filter nor hot would know the key.
func (f *finishing) claimMarks() {
	if len(f.marks) == 0 {
		return
	}
	reqs := make([]driver.ClaimRequest, len(f.marks))
	for n, i := range f.marks {
		c := &f.changes[i]
		reqs[n] = driver.ClaimRequest{
			ID: c.ID, Token: c.Token, Lease: c.Lease, Hold: max(c.Hold, f.l.warmFor),
			Fingerprint: c.Fingerprint, Origin: c.Origin, Label: c.Label,
		}
		if c.Lease <= 0 {
			reqs[n].Lease = f.l.lease
		}
	}
	for n, ans := range answered(f.l.hot.Claim(f.ctx, reqs), len(reqs)) {
		i := f.marks[n]
		switch {
		case ans.Err != nil:
			f.answers[i].Err = ans.Err
		case ans.Record.State == driver.StateFailed: // which cold does not know
			f.answers[i].Record = ans.Record
		default:
			f.early = append(f.early, i)
		}
	}
}

// holdUnlanded asks hot whether claims are still held. Their handlers have read their fences, which
// a downstream may have refused, so only an owner may say that the effects happened.
func (f *finishing) holdUnlanded() {
	if len(f.unlanded) == 0 {
		return
	}
	held := make([]driver.Renewal, len(f.unlanded))
	for n, i := range f.unlanded {
		c := &f.changes[i]
		held[n] = driver.Renewal{ID: c.ID, Token: c.Token, Fence: c.Fence, Lease: c.Lease,
			Hold: max(c.Hold, f.l.warmFor), Window: c.Window}
		if c.Lease <= 0 {
			held[n].Lease = f.l.lease
		}
	}
	for n, ans := range answered(f.l.hot.Renew(f.ctx, held), len(held)) {
		i := f.unlanded[n]
		switch {
		case ans.Err != nil:
			f.answers[i].Err = ans.Err
		case ans.Held:
			f.early = append(f.early, i)
		default: // lost, or this very end is sent again: hot can tell
			f.late = append(f.late, i)
		}
	}
}

// hotAlone writes the ends that cold does not keep.
func (f *finishing) hotAlone() {
	if len(f.alone) == 0 {
		return
	}
	for n, ans := range answered(f.l.hot.Finish(f.ctx, f.pick(f.alone, nil)), len(f.alone)) {
		f.answers[f.alone[n]] = ans
	}
}

// hotFirst writes late ends. They may reach cold longer than a lease after the key was written to
// hot. So they are written to hot once more, for all of the window, before they are written to
// cold. Only hot knows whether the key was forgotten meanwhile.
func (f *finishing) hotFirst() {
	if len(f.late) == 0 {
		return
	}
	var written []int
	for n, ans := range answered(f.l.hot.Finish(f.ctx, f.pick(f.late, nil)), len(f.late)) {
		i := f.late[n]
		if f.answers[i] = ans; ans.Err == nil && ans.Written {
			written = append(written, i)
		}
	}
	for n, ans := range f.land(written) {
		i := written[n]
		ans.Held = ans.Written && f.answers[i].Held
		f.answers[i] = ans
	}
}

// land writes into cold, which knows no claims. So every end is written there as landed, and
// the row in cold decides between two of them.
func (f *finishing) land(items []int) []driver.Answer {
	if len(items) == 0 {
		return nil
	}
	landed := f.pick(items, func(c *driver.Finish) { c.EffectApplied = true })
	return answered(f.l.cold.Finish(f.ctx, landed), len(items))
}

// coldFirst writes the ends of claims that are held.
func (f *finishing) coldFirst() {
	for n, ans := range f.land(f.early) {
		i := f.early[n]
		c := &f.changes[i]
		f.answers[i] = ans
		switch {
		case ans.Err != nil:
		case ans.Written:
			hot, at := *c, i
			hot.EffectApplied, hot.Window = true, f.l.warm(c.Window)
			if f.answers[i].Held = !past(c.Until); c.Fence == 0 { // a mark holds only for itself
				at = -1
			}
			f.last, f.lastAt = append(f.last, hot), append(f.lastAt, at)
		case done(ans.Record.State):
			// Another attempt ended the key. Tell the caller now, not at the end of the lease.
			f.answers[i].Held = false
			req := &driver.ClaimRequest{ID: c.ID, Token: c.Token, Lease: c.Lease, Hold: c.Hold}
			if known, ok := f.l.remember(&ans.Record, c.Fence, req, true); ok {
				f.last, f.lastAt = append(f.last, known), append(f.lastAt, -1)
			}
		}
	}
}

// hotLast ends the claims of the keys that cold has. Hot answers whether the claim was
// still held. Without an answer, it counts as held if its time is not over.
func (f *finishing) hotLast() {
	if len(f.last) == 0 {
		return
	}
	for n, ans := range answered(f.l.hot.Finish(f.ctx, f.last), len(f.last)) {
		if i := f.lastAt[n]; i >= 0 && ans.Err == nil {
			f.answers[i].Held = ans.Held
		}
	}
}
