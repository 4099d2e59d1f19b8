package dedup

import (
	"bytes"
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/lazyctx"
	"github.com/onceward/onceward/dedup/internal/singleflight"
	"github.com/onceward/onceward/dedup/internal/waiting"
)

// Claim asks for the right to run the effect of key, in one round trip. Look at Outcome of the
// returned Claim; [Claim.Err] turns it into an error. With an error the Claim is nil, and a
// claim that a canceled call may have won is released. If there is a Config.Resolve, it resolves
// an uncertain key first. The claim lasts for Config.LeaseTTL; [Claim.KeepAlive] renews it.
func (d *Deduper) Claim(ctx context.Context, key string, opts ...Option) (*Claim, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	r := newRequest(key, opts)
	var req driver.ClaimRequest
	if err := d.prepare(&r, &req); err != nil {
		return nil, err
	}
	req.TakeUncertain = d.takesUncertain(&req)
	if !d.life.Enter() {
		return nil, ErrClosed
	}
	defer d.life.Leave()
	var c *Claim
	if d.cfg.Wait == 0 {
		c = d.claimOnce(ctx, r.Key, &req, false)
	} else {
		c = d.claimWaiting(ctx, r.Key, &req, false)
	}
	return d.granted(ctx, c)
}

// granted resolves the key of c if c has taken over an uncertain one.
func (d *Deduper) granted(ctx context.Context, c *Claim) (*Claim, error) {
	if c.finding {
		c = d.resolve(ctx, c)
	}
	if c.Outcome == Unknown {
		return nil, c.Err()
	}
	return c, nil
}

// takesUncertain reports whether a single call also claims an uncertain key.
func (d *Deduper) takesUncertain(req *driver.ClaimRequest) bool {
	return d.cfg.Resolve != nil && d.cfg.Mode != Observe && !req.OnlyNew
}

// claimWaiting claims the key. While the key is in flight elsewhere, it asks again until
// Config.Wait has passed.
func (d *Deduper) claimWaiting(ctx context.Context, key string, req *driver.ClaimRequest,
	forDo bool) *Claim {
	deadline := time.Now().Add(d.cfg.Wait)
	for {
		// Listen before asking: otherwise an end between the answer and the wait would wake
		// nobody.
		if c := d.listenAndClaim(ctx, key, req, forDo, deadline); c != nil {
			return c
		}
	}
}

func (d *Deduper) listenAndClaim(ctx context.Context, key string, req *driver.ClaimRequest,
	forDo bool, deadline time.Time) *Claim {
	x, stop := d.waiters.Listen(req.ID)
	defer stop() // also when an observer panics
	return d.claimListening(ctx, key, req, forDo, x, deadline)
}

// claimListening asks until it has an answer for the caller. It returns nil when x has ended and
// the caller has to listen to another Key.
func (d *Deduper) claimListening(ctx context.Context, key string, req *driver.ClaimRequest,
	forDo bool,
	x *waiting.Key, deadline time.Time) *Claim {
	for {
		c := d.claimOnce(ctx, key, req, forDo)
		switch {
		case c.left():
			return c // there is no owner to wait for
		case c.Outcome == InFlight:
			d.waiters.Seen(x, c.Record.Remaining)
		case c.Outcome == Duplicate, c.Outcome == Uncertain, c.Outcome == Unknown &&
			ctx.Err() == nil:
			d.waiters.Wake(req.ID) // the others would get the same answer
			return c
		default: // the others go on waiting; if the key is ours now, they wait for us
			return c
		}
		if !d.waiters.Wait(ctx, x, deadline, d.cfg.MaxWaiters, d.wakes.begin(req.ID, x)) {
			return c
		}
		if x.Ended() {
			return nil
		}
	}
}

// claimOnce makes one claim attempt. Concurrent calls of a key share an attempt: if another call's
// attempt is under way, claimOnce waits for its answer.
func (d *Deduper) claimOnce(ctx context.Context, key string, req *driver.ClaimRequest,
	forDo bool) (c *Claim) {
	if cached := d.cache.answer(ctx, &req.ID, &req.Fingerprint); cached != nil {
		return d.newClaim(ctx, key, req, cached)
	}
	own := newAttempt(forDo)
	if c, answered := d.follow(ctx, key, req, &own.flight); answered {
		return c
	}
	defer func() { // also when an observer panics
		if d.inflight.End(req.ID, &own.flight) {
			own.flight.Publish(claimResultOf(ctx, c))
		}
	}()
	// A claim counts from before its first send; see askOn.
	asking, first := d.cache.now(), d.clock()
	own.reqs[0] = *req
	own.reqs[0].Token = newToken()
	call := d.claims.New(req.ID, false)
	call.Of.req = &own.reqs
	ans := take(d.claims, call, d.claims.Do(ctx, call))
	validUntil := d.validFrom(first)
	if !plain(&ans) || d.clock() >= validUntil {
		validUntil = d.askAgain(ctx, first, own.reqs[:], &ans)
	}
	d.cache.learn(req.ID, &ans, asking)
	own.claim.Key, own.claim.d = key, d
	own.claim.ask(&own.reqs[0], messageOf(req))
	d.fill(ctx, &own.claim, &ans, validUntil, false)
	return &own.claim
}

// attempt holds what one claim attempt needs. It is one object, because callers make many thousands
// a second. The store and the handler may keep parts of it, so it is not used again.
type attempt struct {
	claim  Claim
	reqs   [1]driver.ClaimRequest
	flight singleflight.Flight[*Claim]
}

// running is what [Do] needs once its handler runs.
type running struct {
	kept   keptClaim
	change [1]driver.Finish
	after  lazyctx.Timed
}

func newAttempt(forDo bool) *attempt {
	if !forDo {
		return new(attempt)
	}
	own := new(struct {
		attempt
		running
	})
	own.claim.running = &own.running
	return &own.attempt
}

// follow returns the answer of the attempt under way, or what the cache has learned since. If
// neither holds for this request, answered is false: own is then the attempt under way, and the
// caller has to make and end it.
func (d *Deduper) follow(ctx context.Context, key string, req *driver.ClaimRequest,
	own *singleflight.Flight[*Claim]) (c *Claim, answered bool) {
	for {
		fl, lead := d.inflight.Join(req.ID, own)
		if lead {
			return nil, false
		}
		select {
		case <-fl.Done():
		case <-ctx.Done():
			return d.newClaim(ctx, key, req, &driver.Answer{Err: ctxend.Error(ctx)}), true
		}
		if cached := d.cache.answer(ctx, &req.ID, &req.Fingerprint); cached != nil {
			return d.newClaim(ctx, key, req, cached), true
		}
		// Use Observed, not Outcome, because in Observe mode the leader runs whatever the answer
		// was.
		leader := fl.Result()
		ans := shared(leader, req)
		if ans.Outcome == Uncertain && req.TakeUncertain && !leader.takeUncertain {
			continue // the attempt under way did not ask for uncertain keys
		}
		if gains(req, &ans, leader) {
			// this request may take over the claim that the leader met or won, or the leader left
			// the key alone
			continue
		}
		if leader.cancelled && leader.Observed == Unknown ||
			ans.Outcome == Unknown && ans.Err == nil {
			continue // the leader has no answer that holds for us: ask ourselves
		}
		return d.newClaim(ctx, key, req, &ans), true
	}
}

// claimResultOf returns how an attempt ended, for the calls that share it. c is what the attempt's
// own caller got, or nil when it panicked. The result is a copy: that caller may write to c.
func claimResultOf(ctx context.Context, c *Claim) *Claim {
	if c == nil {
		return &Claim{err: ErrUnknown, cancelled: true}
	}
	rec := c.Record
	rec.Result, rec.Steps = bytes.Clone(rec.Result), bytes.Clone(rec.Steps)
	return &Claim{
		Observed: c.Observed, Record: rec, message: c.message, err: c.err,
		onlyNew: c.onlyNew, takeUncertain: c.takeUncertain, cancelled: ctx.Err() != nil,
	}
}

// gains reports whether the request may get a key although another request, whose claim is
// other, was told that the key is in flight.
func gains(r *driver.ClaimRequest, ans *driver.Answer, other *Claim) bool {
	switch {
	case ans.Outcome != InFlight, left(r.OnlyNew, ans.Outcome, &ans.Record):
		return false
	case left(other.onlyNew, ans.Outcome, &ans.Record):
		return true
	}
	return takesOver(r, &ans.Record)
}
