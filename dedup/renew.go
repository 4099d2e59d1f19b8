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
// owner, or the lease may have ended on this process's monotonic clock: it counts from before
// the request that gained it, less 1 % and 2 ms. Observe mode does not cancel for that. The
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

// keep is KeepAlive by a new k; a handler of Do is counted by its call already.
func (c *Claim) keep(ctx context.Context, k *keptClaim, counted bool) {
	k.Parent, k.attempt, k.claim, k.counted, k.gone = ctx, attemptOf(c), c, counted, true
	switch err := k.begin(); {
	case errors.Is(err, ErrLeaseLost):
		c.d.renewals.lose(k, "was not kept alive in time")
	case err != nil:
		k.End(err)
	}
}

// begin puts k among the renewed. With ErrLeaseLost it is there, and its time is over.
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
	gone         bool          // or never begun
	counted      bool          // Close waits for it; it does not change
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

// keptRoom is the room for the kept claims of a batch. It is made for the first of them: a batch is
// mostly kept as a whole, or not at all.
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
	if n > r.size { // it is kept a second time, after it was resolved or in vain
		return new(keptClaim)
	}
	return &r.kept[n-1]
}

// renewer renews claims in batches. It has one timer and no goroutine that rests: the timer is
// set for the claim that is due first, and left alone when that claim ends, so that a short call
// wakes nobody. It then goes off for nothing, and rests until the next claim. A renewal under way
// never delays the cancellation of another claim whose lease ends: batches are sent from
// goroutines of their own. A handler that runs without a claim is in the queue too, never due, so
// that Close can cancel it.
type renewer struct {
	d *Deduper
	// early is from the end of a lease back to its renewal: a third of it after it was gained.
	// Processes that began together differ by up to a tenth.
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

// add begins to renew k; its claim's mutex is held. A claim whose time is over is added, too,
// and the answer is ErrLeaseLost. Its context is to be canceled when KeepAlive returns, so that
// no handler starts by accident.
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

// wakeBy sets the timer for at unless it goes off before; r.mu is held.
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

// finish is the end of drop, when k is not renewed any more.
func (k *keptClaim) finish() {
	k.End(context.Canceled) // remove leaves it alone when an observer loses its lease
	k.dropped.Store(true)
}

// dropAll is drop of the claims of many ends.
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

// remove takes k out, cancels its context unless cause is nil, and reports whether
// this call did.
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

// lose cancels k for the loss of its lease, and tells.
func (r *renewer) lose(k *keptClaim, why string) {
	if r.abort(k) {
		r.d.reportLost(k.claim, why)
	}
}

// abort cancels k for the loss of its lease. The claim is marked before its context is
// canceled: a handler that sees the cancellation must not be able to complete as if
// it had not. In Observe mode nobody is canceled, and nil keeps meaning success.
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
			horizon = now + r.d.cfg.LeaseTTL/20 // company that would be due soon
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
			// The end of this very claim has probably got there first. Its answer decides.
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

// schedule looks at k again at next, and no later than its end, which becomes until
// unless that is zero.
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

func (d *Deduper) reportLost(c *Claim, why string) {
	fire(d.cfg.Observer.LeaseLost, Event{ID: c.id, Attempt: c.Attempt, Err: ErrLeaseLost})
	d.cfg.Logger.Warn("dedup: lease lost", idAttr(c.id), "attempt", c.Attempt, "why", why)
}
