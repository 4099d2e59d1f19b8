package dedup

import (
	"bytes"
	"context"
	"sync"
)

// flights lets concurrent calls of one key in this process share one claim attempt.
type flights struct {
	mu sync.Mutex
	by map[ID]*flight
}

// flight is one claim attempt under way.
type flight struct {
	done      chan struct{}
	claim     *Claim // what followers are told; set before done is closed
	cancelled bool   // it ended because its own caller was cancelled
}

// join returns the attempt under way, or starts one that the caller must end.
func (f *flights) join(id ID) (fl *flight, lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.by[id]; ok {
		return fl, false
	}
	if f.by == nil {
		f.by = make(map[ID]*flight)
	}
	fl = &flight{done: make(chan struct{})}
	f.by[id] = fl
	return fl, true
}

func (f *flights) end(id ID, fl *flight) {
	f.mu.Lock()
	if f.by[id] == fl {
		delete(f.by, id)
	}
	f.mu.Unlock()
	close(fl.done)
}

// leave makes calls that begin from now on ask for themselves: the attempt under way
// may have been answered before what its caller has just done to the key.
func (f *flights) leave(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, id)
}

// claimShared makes one claim attempt, or takes part in the one that is under way.
func (d *Deduper) claimShared(ctx context.Context, key string, req ClaimRequest) *Claim {
	for {
		if ans, ok := d.cache.get(ctx, &req.ID, &req.Fingerprint); ok {
			return d.newClaim(ctx, key, req, asked{answer: ans}, true)
		}
		fl, lead := d.flights.join(req.ID)
		if lead {
			return d.lead(ctx, key, req, fl)
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			return d.newClaim(ctx, key, req, asked{answer: Answer{Err: gone(ctx)}}, true)
		}
		// Observed, not Outcome: in Observe mode the leader runs whatever it has learnt.
		ans := shared(fl.claim, req)
		if ans.Outcome == Uncertain && req.TakeUncertain && !fl.claim.req.TakeUncertain {
			continue // the one under way did not ask for that
		}
		if fl.cancelled && fl.claim.Observed == Unknown || ans.Outcome == Unknown && ans.Err == nil {
			continue // nothing was learnt that holds for us: ask ourselves
		}
		return d.newClaim(ctx, key, req, asked{answer: ans}, true)
	}
}

// lead makes the attempt that others may be waiting for.
func (d *Deduper) lead(ctx context.Context, key string, req ClaimRequest, fl *flight) *Claim {
	fl.claim, fl.cancelled = &Claim{err: ErrUnknown}, true // for an observer that panics
	defer d.flights.end(req.ID, fl)
	asking := d.cache.now()
	a := d.ask(ctx, []ClaimRequest{req}, d.sendClaim)[0]
	d.cache.learn(req.ID, a.answer, asking)
	c := d.newClaim(ctx, key, req, a, false)
	// The caller may write into its result before the last follower has read it.
	rec := c.Record
	rec.Result = bytes.Clone(rec.Result)
	fl.claim = &Claim{Observed: c.Observed, Record: rec, req: req, err: c.err}
	fl.cancelled = ctx.Err() != nil
	return c
}
