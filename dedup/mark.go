package dedup

import (
	"context"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/keytext"
	"github.com/onceward/onceward/dedup/internal/pause"
)

// Seen reports whether key is done: it succeeded, or failed for good; a key in flight is not. With
// [Deduper.Mark] it is the weakest receiver: a crash between the effect and Mark, or a second
// delivery between Seen and Mark, runs the effect twice. In Observe mode it answers false, also
// when the store cannot be asked. It costs one round trip. The error is [ErrMismatch] when the key
// is done with another fingerprint, and [ErrUncertain] when the key is uncertain.
func (d *Deduper) Seen(ctx context.Context, key string, opts ...Option) (bool, error) {
	if err := d.check(ctx); err != nil {
		return false, err
	}
	r := newRequest(key, opts)
	id, err := d.id(&r)
	if err == nil && r.Label != "" {
		err = checkText("Label", r.Label, keytext.MaxLabel)
	}
	if err == nil {
		r.Window, err = d.window(r.Window)
	}
	if err != nil {
		return false, err
	}
	if d.cfg.Mode != Observe && d.cfg.Observer.Claimed == nil && !d.life.Closed() {
		// no store is asked, so there is no call for Close to wait for
		if mismatch, done := d.cache.holds(&id, &r.Fingerprint); done {
			if mismatch {
				return false, ErrMismatch
			}
			return true, nil
		}
	}
	return d.seen(ctx, id, &r)
}

// seen does the work of Seen where the cache alone cannot answer, or where the Observer gets an
// event.
func (d *Deduper) seen(ctx context.Context, id driver.ID, r *Request) (bool, error) {
	if !d.life.Enter() {
		return false, ErrClosed
	}
	defer d.life.Leave()
	req := driver.ClaimRequest{ID: id, Fingerprint: r.Fingerprint, Origin: r.Origin}
	ans, cached := d.cache.get(ctx, &req.ID, &req.Fingerprint)
	if !cached {
		asking := d.cache.now()
		if ans = d.askRecord(ctx, req.ID); ans.Err != nil {
			d.storeError(req.ID, ans.Err)
			c := Claim{id: id, err: unknown(ans.Err)}
			c.fire(d.cfg.Observer.Claimed, false)
			if d.cfg.Mode == Observe {
				return false, nil
			}
			return false, c.err
		}
		switch ans.Outcome = Acquired; {
		case ans.Record.State == driver.StateUncertain:
			ans.Outcome = Uncertain
		case !terminal(ans.Record.State):
		case ans.Record.Fingerprint.Conflicts(req.Fingerprint):
			ans.Outcome = Mismatch
		default:
			ans.Outcome = Duplicate
		}
		d.cache.learn(req.ID, &ans, asking)
	}
	c := Claim{Outcome: ans.Outcome, Record: ans.Record,
		id: id, Cause: causeOf(ans.Outcome, &req.Origin, &ans.Record, r.Window/2)}
	c.fire(d.cfg.Observer.Claimed, cached)
	switch {
	case ans.Outcome == Acquired:
		return false, nil
	case d.cfg.Mode == Observe:
		c.fire(d.cfg.Observer.WouldSkip, cached)
		return false, nil
	case ans.Outcome == Mismatch:
		return false, ErrMismatch
	case ans.Outcome == Uncertain:
		return false, ErrUncertain
	}
	return true, nil
}

// Mark records that the effect of key has happened, without a claim, in one round trip. Call it
// after the effect: marking first loses the message when the process dies in between. It reports
// whether this call was the first to record the key. An unfinished claim of somebody else
// becomes succeeded, and a finished key stays as it is.
//
// Repeating Mark after an error is harmless, but if the failed call had been executed, no call
// reports true. In Observe mode a record that could not be written is not an error: first is
// true.
func (d *Deduper) Mark(ctx context.Context, key string, opts ...Option) (first bool, err error) {
	if err := d.check(ctx); err != nil {
		return false, err
	}
	r := newRequest(key, opts)
	var req driver.ClaimRequest
	if err := d.prepare(&r, &req); err != nil {
		return false, err
	}
	if !d.life.Enter() {
		return false, ErrClosed
	}
	defer d.life.Leave()
	var change driver.Finish
	(&Claim{Attempt: 1, id: req.ID, token: newToken(), window: req.Window,
		message: messageOf(&req)}).change(&Completion{}, &d.cfg, &change)
	change.EffectApplied = true
	for try := 0; ; try++ {
		sent := d.cache.now()
		ans := d.askEnd(ctx, &[1]driver.Finish{change})
		if ans.Err == nil {
			d.noteEnd(&change, &ans, sent)
			return ans.Written, nil
		}
		d.storeError(req.ID, ans.Err)
		if !passes(ans.Err) || try+1 == askTimes ||
			pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) != nil {
			if d.cfg.Mode == Observe {
				return true, nil
			}
			return false, unknown(ans.Err)
		}
	}
}
