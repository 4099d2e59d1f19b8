package dedup

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pollBase   = 10 * time.Millisecond
	pollAtMost = time.Second
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
		asking := d.cache.now()
		if ans, ok := d.cache.get(req.ID, req.Fingerprint); ok {
			return d.newClaim(ctx, key, req, asked{answer: ans}, true)
		}
		fl, lead := d.flights.join(req.ID)
		if lead {
			return d.lead(ctx, key, req, fl, asking)
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			return d.newClaim(ctx, key, req, asked{answer: Answer{Err: gone(ctx)}}, true)
		}
		// Observed, not Outcome: in Observe mode the leader runs whatever it has learnt.
		ans := shared(fl.claim, req)
		if fl.cancelled && fl.claim.Observed == Unknown || ans.Outcome == Unknown && ans.Err == nil {
			continue // nothing was learnt that holds for us: ask ourselves
		}
		return d.newClaim(ctx, key, req, asked{answer: ans}, true)
	}
}

// lead makes the attempt that others may be waiting for.
func (d *Deduper) lead(ctx context.Context, key string, req ClaimRequest, fl *flight, asking stamp) *Claim {
	fl.claim, fl.cancelled = &Claim{err: ErrUnknown}, true // for an observer that panics
	defer d.flights.end(req.ID, fl)
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

// waiters counts the calls that wait for keys in flight, and wakes those whose key
// ends in this process.
type waiters struct {
	count atomic.Int64
	mu    sync.Mutex
	by    map[ID]*waiting
}

type waiting struct {
	ended chan struct{}
	n     int
}

// on returns the channel that is closed when the key ends here, and what to call when
// it is not waited for any more.
func (w *waiters) on(id ID) (ended <-chan struct{}, off func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[ID]*waiting)
	}
	x := w.by[id]
	if x == nil {
		x = &waiting{ended: make(chan struct{})}
		w.by[id] = x
	}
	x.n++
	return x.ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if x.n--; x.n == 0 && w.by[id] == x {
			delete(w.by, id)
		}
	}
}

func (w *waiters) wake(id ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.by[id]; x != nil {
		close(x.ended)
		delete(w.by, id)
	}
}

// ended makes those look again who wait for the key, or share an attempt that was
// answered before its end.
func (d *Deduper) ended(id ID) {
	d.flights.leave(id)
	d.waiters.wake(id)
}

// claimWaiting claims, and while the key is in flight elsewhere asks again until
// Config.Wait has passed. Polling with full jitter spreads the losers of a hot key; the
// next poll is never later than the end of the lease that was seen.
func (d *Deduper) claimWaiting(ctx context.Context, key string, req ClaimRequest) *Claim {
	if d.cfg.Wait == 0 {
		return d.claimShared(ctx, key, req)
	}
	deadline := time.Now().Add(d.cfg.Wait)
	for try := 0; ; try++ {
		// Listening begins before asking: an end between the answer and the wait would
		// otherwise wake nobody.
		ended, off := d.waiters.on(req.ID)
		c := d.claimShared(ctx, key, req)
		if c.Outcome != InFlight || !d.waitTurn(ctx, c, ended, deadline, try) {
			off()
			return c
		}
		off()
		req.Token = newToken()
	}
}

// waitTurn waits until it is time to ask again, and reports false when that will not be.
func (d *Deduper) waitTurn(ctx context.Context, c *Claim, ended <-chan struct{}, deadline time.Time, try int) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	defer d.waiters.count.Add(-1)
	if d.waiters.count.Add(1) > int64(d.cfg.MaxWaiters) {
		return false
	}
	pause := min(left, pollBase+jitter(pollBase, pollAtMost, try))
	if lease := c.Record.Remaining; lease > 0 {
		pause = min(pause, lease+time.Millisecond)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended:
	case <-ctx.Done():
		return false
	}
	return true
}
