package dedup

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/onceward/onceward/dedup/internal/ctxend"
)

// flights lets concurrent calls of one key in this process share one claim attempt.
type flights struct {
	mu sync.Mutex
	by map[ID]*flight
	n  atomic.Int64 // len(by): most ends find no attempt, and take no lock for it
}

// flight is one claim attempt under way.
type flight struct {
	done      chan struct{} // nil until somebody follows; guarded by flights.mu
	claim     *Claim        // what followers are told; set before done is closed
	cancelled bool          // it ended because its own caller was canceled
}

// join returns the attempt under way, or starts one that the caller must end.
func (f *flights) join(id ID) (fl *flight, lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.by[id]; ok {
		if fl.done == nil {
			fl.done = make(chan struct{})
		}
		return fl, false
	}
	if f.by == nil {
		f.by = make(map[ID]*flight)
	}
	fl = new(flight)
	f.by[id] = fl
	f.n.Store(int64(len(f.by)))
	return fl, true
}

// end ends an attempt whose caller has got c, or nil when it panicked. The copy for others is
// made only if there are others, and before the caller can write into c.
func (f *flights) end(ctx context.Context, id ID, fl *flight, c *Claim) {
	f.mu.Lock()
	if f.by[id] == fl {
		f.drop(id)
	}
	done := fl.done
	f.mu.Unlock()
	if done == nil {
		return
	}
	fl.claim, fl.cancelled = &Claim{err: ErrUnknown}, true
	if c != nil {
		rec := c.Record
		rec.Result, rec.Steps = bytes.Clone(rec.Result), bytes.Clone(rec.Steps)
		fl.claim, fl.cancelled = &Claim{
			Observed: c.Observed, Record: rec, message: c.message, err: c.err,
			firstOnly: c.firstOnly, takeUncertain: c.takeUncertain,
		}, ctx.Err() != nil
	}
	close(done)
}

// leave makes calls that begin from now on ask for themselves. The store may have answered
// the attempt under way before the change that the caller has just made to the key. An attempt
// that begins after leave asks after that change.
func (f *flights) leave(id ID) {
	if f.n.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(id)
}

// drop needs the mutex.
func (f *flights) drop(id ID) {
	delete(f.by, id)
	f.n.Store(int64(len(f.by)))
}

// claimOnce makes one claim attempt, which concurrent calls of the key share, or takes part in
// the one that is under way.
func (d *Deduper) claimOnce(ctx context.Context, key string, req *ClaimRequest) (c *Claim) {
	fl, c := d.follow(ctx, key, req)
	if fl == nil {
		return c
	}
	defer func() { d.flights.end(ctx, req.ID, fl, c) }() // also when an observer panics
	// A claim counts from before its first send; see askOn.
	asking, first := d.cache.now(), d.clock()
	// The store may keep the request, and the next attempt has its own.
	own := &struct {
		claim Claim
		reqs  [1]ClaimRequest
	}{reqs: [1]ClaimRequest{*req}}
	own.reqs[0].Token = newToken()
	ans := d.claims.DoOne(ctx, own.reqs[:])
	validUntil := d.validFrom(first)
	if !ans.plain() || d.clock() >= validUntil {
		validUntil = d.askAgain(ctx, first, own.reqs[:], &ans)
	}
	d.cache.learn(req.ID, &ans, asking)
	own.claim.Key, own.claim.d = key, d
	own.claim.ask(&own.reqs[0], req.message())
	d.fill(ctx, &own.claim, &ans, validUntil, false)
	return &own.claim
}

// follow returns the answer of the cache, or of the attempt under way. Without one that holds
// for this request it returns an attempt that the caller has to make and end.
func (d *Deduper) follow(ctx context.Context, key string, req *ClaimRequest) (*flight, *Claim) {
	for {
		if cached := d.cache.answer(ctx, &req.ID, &req.Fingerprint); cached != nil {
			return nil, d.newClaim(ctx, key, req, asked{answer: cached}, true)
		}
		fl, lead := d.flights.join(req.ID)
		if lead {
			return fl, nil
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			left := &Answer{Err: ctxend.Error(ctx)}
			return nil, d.newClaim(ctx, key, req, asked{answer: left}, true)
		}
		// Observed, not Outcome: in Observe mode the leader runs whatever the answer was.
		ans := shared(fl.claim, req)
		if ans.Outcome == Uncertain && req.TakeUncertain && !fl.claim.takeUncertain {
			continue // the one under way did not ask for that
		}
		if req.gains(&ans, fl.claim) {
			// the leader met or won a claim that this one takes over, or left the key alone
			continue
		}
		if fl.cancelled && fl.claim.Observed == Unknown ||
			ans.Outcome == Unknown && ans.Err == nil {
			continue // the leader has no answer that holds for us: ask ourselves
		}
		return nil, d.newClaim(ctx, key, req, asked{answer: &ans}, true)
	}
}
