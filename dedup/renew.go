package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/lazyctx"
)

// KeepAlive renews the claim in the background, at a third of the lease with jitter, and returns
// the context to run the effect under. That context carries the attempt ([FromContext]) and
// follows ctx. It is canceled with cause [ErrLeaseLost] as soon as a renewal finds another
// owner, or the lease may have ended on this process's monotonic clock. The lease counts from
// before the request that gained it, less 1 % and 2 ms. Observe mode does not cancel for that. The
// cause is [ErrClosed] when Close gives up waiting.
//
// Renewal continues after ctx ends, because the effect may still be running. It ends with stop,
// which cancels the context too: call it in any case. Complete, Fail and Release call it when
// they have ended the claim. For a nil ctx, and for a claim that is not acquired, has ended or
// is already kept, the context is canceled from the start, with an [*InputError] as cause.
func (c *Claim) KeepAlive(ctx context.Context) (run context.Context, stop context.CancelFunc) {
	if ctx == nil || c == nil || c.d == nil {
		run, cancel := context.WithCancelCause(context.Background())
		cancel(&InputError{Field: "Claim",
			Reason: "cannot be kept alive: it, or the context, is nil"})
		return run, func() {}
	}
	k := c.room.next()
	c.keep(ctx, k, true)
	return k, k.drop
}

// keep does the work of KeepAlive, with a new k. For Do, counted is false, because Close waits for
// the call of Do itself.
func (c *Claim) keep(ctx context.Context, k *keptClaim, counted bool) {
	k.Parent, k.attempt, k.claim, k.counted, k.gone = ctx, attemptOf(c), c, counted, true
	switch err := k.begin(); {
	case errors.Is(err, ErrLeaseLost):
		c.d.renewals.lose(k, "was not kept alive in time")
	case err != nil:
		k.End(err)
	}
}

// begin adds k to the claims to renew. If the lease is over, it does so too, and returns
// ErrLeaseLost.
func (k *keptClaim) begin() error {
	c := k.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Outcome != Acquired || c.ended != driver.StateAbsent || c.kept != nil {
		return &InputError{Field: "Claim",
			Reason: "cannot be kept alive: not acquired, ended, or kept already"}
	}
	c.kept = k
	return c.d.renewals.add(k)
}

// keptClaim is a claim that is being renewed, and the context of its handler.
type keptClaim struct {
	lazyctx.Context
	attempt Attempt
	claim   *Claim

	// guarded by renewer.mu, which is taken inside Claim.mu and never around it
	until        time.Duration // when the claim stops being ours, by Deduper.clock
	next         time.Duration // when to look at it again
	dropped      atomic.Bool   // nothing is left for drop to do; not guarded
	index        int32         // in the heap of a renewQueue; -1 in its list
	sending      bool          // a renewal is under way
	gone         bool          // it was removed, or never added
	counted      bool          // Close waits for it; never changes
	prior, after *keptClaim    // in that list
}

// Value implements context.Context. The attempt is here, and not in a context of its own,
// because a consumer keeps many thousands of claims a second.
func (k *keptClaim) Value(key any) any {
	if key == (attemptKey{}) {
		return &k.attempt
	}
	return k.Context.Value(key)
}

func (k *keptClaim) drop() { k.claim.d.renewals.drop(k) }

// keptRoom has space for the kept claims of a batch, allocated for the first of them: mostly all
// claims of a batch are kept alive, or none.
type keptRoom struct {
	size  int32 // claims that were won
	taken atomic.Int32
	once  sync.Once
	kept  []keptClaim
}

func (r *keptRoom) next() *keptClaim {
	if r == nil {
		return new(keptClaim)
	}
	r.once.Do(func() { r.kept = make([]keptClaim, r.size) })
	n := r.taken.Add(1)
	if n > r.size { // a claim is kept a second time: it was resolved, or the first time failed
		return new(keptClaim)
	}
	return &r.kept[n-1]
}

// renewer renews claims in batches. It has one timer and no waiting goroutine. The timer is set for
// the claim that is due first, and left alone when that claim ends, so that a short call wakes
// nobody. The timer then goes off with nothing to do, and the next claim sets it again. A renewal
// never delays the cancellation of another claim whose lease ends: batches are sent from goroutines
// of their own. A handler that runs without a claim is in the queue too, never due, so that Close
// can cancel it.
type renewer struct {
	d *Deduper
	// early is how long before its end a lease is renewed, so that the renewal comes about a third
	// of the lease after the claim was gained. A random part of up to a tenth spreads the renewals
	// of processes that began together.
	early time.Duration

	mu     sync.Mutex
	queue  renewQueue
	timer  *time.Timer
	wake   time.Duration // when the timer goes off, by Deduper.clock; 0 while it rests
	closed bool          // Close has given up waiting
}

func newRenewer(d *Deduper) *renewer {
	lease := d.cfg.LeaseTTL
	return &renewer{d: d, early: lease - margin(lease) - lease/3 + rand.N(lease/10)}
}

// add begins to renew k; its claim's mutex is held. It also adds a claim whose lease is over, and
// returns ErrLeaseLost. The caller then cancels its context before KeepAlive returns, so that no
// handler starts by accident.
func (r *renewer) add(k *keptClaim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	k.gone = false
	if k.counted {
		r.d.life.Hold()
	}
	k.until = k.claim.validUntil
	k.next = k.until - r.early
	if k.claim.shadow {
		k.until, k.next = never, never
	}
	r.queue.push(k, r.d.cfg.LeaseTTL/20)
	r.wakeBy(k.next)
	if r.d.clock() >= k.until {
		return ErrLeaseLost
	}
	return nil
}

// wakeBy sets the timer to a time, unless it goes off earlier; r.mu is held.
func (r *renewer) wakeBy(at time.Duration) {
	if r.wake != 0 && r.wake <= at || at == never {
		return
	}
	r.wake = at
	wait := at - r.d.clock()
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.step)
		return
	}
	r.timer.Reset(wait)
}

// drop ends the renewal of k and cancels its context. It does nothing the second time.
func (r *renewer) drop(k *keptClaim) {
	if k.dropped.Load() {
		return
	}
	r.remove(k, context.Canceled)
	k.finish()
}

// finish does the last part of drop, after k was removed.
func (k *keptClaim) finish() {
	k.End(context.Canceled) // abort does not cancel it in Observe mode
	k.dropped.Store(true)
}

// dropAll drops the claims of many ends.
func (r *renewer) dropAll(ended []completion) {
	counted := 0
	r.mu.Lock()
	for i := range ended {
		k := ended[i].kept
		if k == nil || k.gone {
			continue
		}
		k.gone = true
		r.queue.remove(k)
		if k.counted {
			counted++
		}
	}
	r.mu.Unlock()
	for i := range ended {
		if k := ended[i].kept; k != nil {
			k.finish()
		}
	}
	r.d.life.LeaveAll(counted)
}

// close cancels every handler, and those that would begin later, with ErrClosed.
func (r *renewer) close() {
	r.mu.Lock()
	r.closed = true
	all := r.queue.all()
	r.mu.Unlock()
	for _, k := range all {
		r.remove(k, ErrClosed)
	}
}

// remove takes k out of the queue, and cancels its context unless cause is nil. It reports
// whether this call took it out.
func (r *renewer) remove(k *keptClaim, cause error) bool {
	r.mu.Lock()
	if k.gone {
		r.mu.Unlock()
		return false
	}
	k.gone = true
	r.queue.remove(k)
	r.mu.Unlock()
	if cause != nil {
		k.End(cause)
	}
	if k.counted {
		r.d.life.Leave()
	}
	return true
}

// lose cancels k for the loss of its lease, and reports the loss.
func (r *renewer) lose(k *keptClaim, why string) {
	if r.abort(k) {
		r.d.reportLost(k.claim, why)
	}
}

// abort cancels k for the loss of its lease. The claim is marked before its context is
// canceled: otherwise a handler could see the cancellation, return nil, and be recorded as
// done. In Observe mode nobody is canceled, and nil keeps meaning success.
func (r *renewer) abort(k *keptClaim) bool {
	if r.d.cfg.Mode == Observe {
		return r.remove(k, nil)
	}
	k.claim.mu.Lock()
	if k.claim.ended == driver.StateAbsent {
		k.claim.lost = true
	}
	k.claim.mu.Unlock()
	return r.remove(k, ErrLeaseLost)
}

// step does what is due, and sets the timer for what comes next.
func (r *renewer) step() {
	r.d.life.Begin()
	defer r.d.life.End()
	r.mu.Lock()
	due, ended := r.take(r.d.clock())
	r.wake = 0
	if k := r.queue.head(); k != nil {
		r.wakeBy(k.next)
	}
	r.mu.Unlock()

	for part := range slices.Chunk(due, storeBatch) {
		r.d.life.Begin()
		go r.send(part)
	}
	// All are canceled before any hook is called: a slow hook keeps no handler running.
	ended = slices.DeleteFunc(ended, func(k *keptClaim) bool { return !r.abort(k) })
	for _, k := range ended {
		r.d.reportLost(k.claim, "could not be renewed in time")
	}
}

// take returns the claims to renew now, and those whose lease has ended; r.mu is held.
func (r *renewer) take(now time.Duration) (due, ended []*keptClaim) {
	horizon := now
	for {
		k := r.queue.head()
		if k == nil || k.next > now && (k.sending || k.next > horizon) {
			return due, ended
		}
		next := k.until
		switch {
		case now >= k.until:
			ended = append(ended, k)
			next = never // the caller removes it, outside the lock
		case k.sending:
		default:
			k.sending = true
			due = append(due, k)
			horizon = now + r.d.cfg.LeaseTTL/20 // also take what would be due soon
		}
		r.queue.move(k, next)
	}
}

// send renews a batch.
func (r *renewer) send(batch []*keptClaim) {
	defer r.d.life.End()
	cfg := r.d.cfg
	renewals := make([]driver.Renewal, len(batch))
	for i, k := range batch {
		renewals[i] = driver.Renewal{ID: k.claim.id, Token: k.claim.token, Fence: k.claim.fence,
			Lease: cfg.LeaseTTL, Hold: cfg.Hold, Window: k.claim.window}
	}
	until := r.d.validFrom(r.d.clock())
	ctx, cancel := context.WithTimeout(context.Background(), cfg.StoreTimeout)
	answers := answered(r.d.store.Renew(ctx, renewals), len(renewals))
	cancel()
	for i, k := range batch {
		switch ans := answers[i]; {
		case ans.Held:
			r.renewed(k, until)
		case ans.Err == nil && k.claim.finishing.Load() > 0:
			// This claim's own end was probably executed first. The answer to that end decides.
			r.abort(k)
		case ans.Err == nil:
			r.lose(k, "a renewal found another owner")
		default:
			r.d.storeError(k.claim.id, ans.Err)
			r.again(k)
		}
	}
}

// renewed notes a renewal. When its answer came after the lease had ended here, k is
// gone, and its claim stays lost.
func (r *renewer) renewed(k *keptClaim, until time.Duration) {
	k.claim.mu.Lock()
	k.claim.validUntil = until
	k.claim.mu.Unlock()
	r.schedule(k, until, until-r.early)
}

// again schedules another try after a renewal that was not answered.
func (r *renewer) again(k *keptClaim) {
	step := r.d.cfg.LeaseTTL / 20
	r.schedule(k, 0, r.d.clock()+step+rand.N(step))
}

// schedule sets the time of the next look at k: next, or the end of its lease if that is earlier.
// If until is not zero, it becomes the end of the lease.
func (r *renewer) schedule(k *keptClaim, until, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.gone {
		return
	}
	if until != 0 {
		k.until = until
	}
	k.sending = false
	r.queue.move(k, min(next, k.until))
	r.wakeBy(k.next)
}

// reportLost reports the loss of a claim, once: the end of a claim that was lost while its handler
// ran finds the same loss.
func (d *Deduper) reportLost(c *Claim, why string) {
	if c.lossTold.Swap(true) {
		return
	}
	fire(d.cfg.Observer.LeaseLost, Event{ID: c.id, Attempt: c.Attempt, Err: ErrLeaseLost})
	d.cfg.Logger.Warn("dedup: lease lost", idAttr(c.id), "attempt", c.Attempt, "why", why)
}
