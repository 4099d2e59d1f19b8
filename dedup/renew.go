package dedup

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// KeepAlive renews the claim in the background, at a third of the lease with jitter, and
// returns the context to run the effect under. That context carries the attempt ([FromContext])
// and follows ctx. It is canceled with cause [ErrLeaseLost] as soon as a renewal finds another
// owner, or the lease may have ended: it is measured on this process's monotonic clock from before
// the request that gained it, less 1 % and 2 ms. Observe mode does not cancel for that. The cause
// is ErrClosed when Close gives up waiting. Renewal continues after ctx ends, until stop is
// called, because the effect may still be running.
//
// stop ends the renewal and cancels the context; call it in any case. Complete, Fail and Release
// call it too. KeepAlive of a claim that is not acquired, has ended or is already kept, and of a
// nil ctx, returns a context that is already canceled with an [*InputError] as cause.
func (c *Claim) KeepAlive(ctx context.Context) (run context.Context, stop context.CancelFunc) {
	return c.keep(ctx, true)
}

// keep is KeepAlive; a handler of Do is counted by its call already.
func (c *Claim) keep(ctx context.Context, counted bool) (context.Context, context.CancelFunc) {
	if ctx == nil || c == nil || c.d == nil {
		run, cancel := context.WithCancelCause(context.Background())
		cancel(&InputError{Field: "Claim",
			Reason: "cannot be kept alive: it, or the context, is nil"})
		return run, func() {}
	}
	run, cancel := context.WithCancelCause(ctx)
	k := &keptClaim{Context: run, attempt: attemptOf(c), claim: c, cancel: cancel,
		counted: counted, index: -1}
	if err := k.begin(); err != nil {
		cancel(err)
		return k, func() {}
	}
	c.d.renewals.admit(k)
	return k, k.drop
}

// begin puts k among the renewed.
func (k *keptClaim) begin() error {
	c := k.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Outcome != Acquired || c.ended != StateAbsent || c.kept != nil {
		return &InputError{Field: "Claim",
			Reason: "cannot be kept alive: not acquired, ended, or kept already"}
	}
	c.kept = k
	if k.counted {
		c.d.life.Hold()
	}
	c.d.renewals.add(k)
	return nil
}

// keptClaim is a claim that is being renewed, and the context of its handler.
type keptClaim struct {
	context.Context
	attempt Attempt
	claim   *Claim
	cancel  context.CancelCauseFunc
	counted bool // Close waits for it

	// guarded by renewer.mu, which is taken inside Claim.mu and never around it
	until   time.Time // when the claim stops being ours
	next    time.Time // when to look at it again
	sending bool      // a renewal is under way
	gone    bool
	index   int // in the heap
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

// renewer renews claims in batches from one goroutine, which exists only while there
// are claims to renew. A renewal under way never delays the cancellation of another
// claim whose lease ends: batches are sent from goroutines of their own. A handler that runs
// without a claim is in the queue too, never due, so that Close can cancel it.
type renewer struct {
	d *Deduper

	mu      sync.Mutex
	queue   keptHeap
	running bool
	closed  bool // Close has given up waiting
	wake    chan struct{}
}

func newRenewer(d *Deduper) *renewer {
	return &renewer{d: d, wake: make(chan struct{}, 1)}
}

// add begins to renew k; its claim's mutex is held.
func (r *renewer) add(k *keptClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.until = r.d.at(k.claim.validUntil)
	k.next = r.early(k.until)
	if k.claim.shadow {
		k.until = time.Now().Add(maxWindow)
		k.next = k.until
	}
	heap.Push(&r.queue, k)
	if !r.running {
		r.running = true
		r.d.life.Begin()
		go r.run()
		return
	}
	r.nudgeFor(k)
}

// admit ends a claim whose time is over at once. Its context is canceled when KeepAlive
// returns, so that no handler starts by accident.
func (r *renewer) admit(k *keptClaim) {
	r.mu.Lock()
	closed, over := r.closed, !time.Now().Before(k.until)
	r.mu.Unlock()
	switch {
	case closed:
		r.remove(k, ErrClosed)
	case over:
		r.lose(k, "was not kept alive in time")
	}
}

// early is when to renew a claim that is valid until t: a third of the lease after it
// was gained, at once if that is past, spread by a tenth.
func (r *renewer) early(t time.Time) time.Time {
	lease := r.d.cfg.LeaseTTL
	gained := t.Add(margin(lease) - lease)
	return gained.Add(lease/3 - rand.N(lease/10))
}

// drop ends the renewal of k and cancels its context. It does nothing the second time.
func (r *renewer) drop(k *keptClaim) {
	r.remove(k, context.Canceled)
	k.cancel(context.Canceled) // remove left it alone when an observer lost its lease
}

// close cancels every handler, and those that would begin later, with ErrClosed.
func (r *renewer) close() {
	r.mu.Lock()
	r.closed = true
	all := append(keptHeap(nil), r.queue...)
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
	heap.Remove(&r.queue, k.index)
	if len(r.queue) == 0 {
		r.nudge() // the goroutine is to end; otherwise it wakes when k would have been due
	}
	r.mu.Unlock()
	if cause != nil {
		k.cancel(cause)
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
	if k.claim.ended == StateAbsent {
		k.claim.lost = true
	}
	k.claim.mu.Unlock()
	return r.remove(k, ErrLeaseLost)
}

// nudge makes run look at the queue again; r.mu is held.
func (r *renewer) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// nudgeFor makes run look at the queue again if k is due before everything else; r.mu is
// held.
func (r *renewer) nudgeFor(k *keptClaim) {
	if k.index == 0 {
		r.nudge()
	}
}

func (r *renewer) run() {
	defer r.d.life.End()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, ok := r.step()
		if !ok {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// step does what is due and returns how long there is nothing to do, or false when
// there is nothing left to renew.
func (r *renewer) step() (time.Duration, bool) {
	now := time.Now()
	horizon := now
	var due, ended []*keptClaim
	r.mu.Lock()
	for len(r.queue) > 0 {
		k := r.queue[0]
		if k.next.After(now) && (k.sending || k.next.After(horizon)) {
			break
		}
		switch {
		case !now.Before(k.until):
			ended = append(ended, k)
			k.next = now.Add(time.Hour) // lose removes it below, outside the lock
		case k.sending:
			k.next = k.until
		default:
			k.sending, k.next = true, k.until
			due = append(due, k)
			horizon = now.Add(r.d.cfg.LeaseTTL / 20) // company that would be due soon
		}
		heap.Fix(&r.queue, 0)
	}
	if len(r.queue) == 0 {
		r.running = false
		r.mu.Unlock()
		return 0, false
	}
	wait := time.Until(r.queue[0].next)
	r.mu.Unlock()

	for part := range slices.Chunk(due, storeBatch) {
		r.d.life.Begin()
		go r.send(part)
	}
	if len(ended) == 0 {
		return max(wait, 0), true
	}
	// All are canceled before any hook is called: a slow hook keeps no handler running.
	ended = slices.DeleteFunc(ended, func(k *keptClaim) bool { return !r.abort(k) })
	for _, k := range ended {
		r.d.reportLost(k.claim, "could not be renewed in time")
	}
	return 0, true
}

// send renews a batch.
func (r *renewer) send(batch []*keptClaim) {
	defer r.d.life.End()
	cfg := r.d.cfg
	renewals := make([]Renewal, len(batch))
	for i, k := range batch {
		renewals[i] = Renewal{ID: k.claim.id, Token: k.claim.token, Fence: k.claim.fence,
			Lease: cfg.LeaseTTL, Hold: cfg.Hold, Window: cfg.Window}
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.StoreTimeout)
	answers := answered(r.d.store.Renew(ctx, renewals), len(renewals))
	cancel()
	until := sent.Add(cfg.LeaseTTL - margin(cfg.LeaseTTL))
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
func (r *renewer) renewed(k *keptClaim, until time.Time) {
	k.claim.mu.Lock()
	k.claim.validUntil = until.Sub(r.d.start)
	k.claim.mu.Unlock()
	r.schedule(k, until, r.early(until))
}

// again schedules another try after a renewal that was not answered.
func (r *renewer) again(k *keptClaim) {
	step := r.d.cfg.LeaseTTL / 20
	r.schedule(k, time.Time{}, time.Now().Add(step+rand.N(step)))
}

// schedule looks at k again at next, and no later than its end, which becomes until
// unless that is zero.
func (r *renewer) schedule(k *keptClaim, until, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.gone {
		return
	}
	if !until.IsZero() {
		k.until = until
	}
	if next.After(k.until) {
		next = k.until
	}
	k.sending, k.next = false, next
	heap.Fix(&r.queue, k.index)
	r.nudgeFor(k)
}

// keptHeap orders kept claims by when to look at them.
type keptHeap []*keptClaim

func (h keptHeap) Len() int           { return len(h) }
func (h keptHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h keptHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *keptHeap) Push(x any) {
	k := x.(*keptClaim) //nolint:errcheck // only add pushes
	k.index = len(*h)
	*h = append(*h, k)
}

func (h *keptHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return k
}

func (d *Deduper) reportLost(c *Claim, why string) {
	fire(d.cfg.Observer.LeaseLost, Event{ID: c.id, Attempt: c.Attempt, Err: ErrLeaseLost})
	d.cfg.Logger.Warn("dedup: lease lost", idAttr(c.id), "attempt", c.Attempt, "why", why)
}
