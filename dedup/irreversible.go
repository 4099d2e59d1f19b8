package dedup

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/pause"
)

// MarkIrreversible declares that the irreversible part of the attempt under ctx begins now: call
// it before the request that nobody can take back. Begin only when it returns nil: the store has
// then acknowledged it while the claim was ours. From then on the attempt can end in three ways:
//
//   - The handler returns nil or a failure for good ([IsPermanent]): it is recorded. A store
//     that keeps no failures records nil only.
//   - It returns [NotStarted] of an error: the claim is released.
//   - Anything else (another error, a panic, Release, a crash, a lost lease, a Close that gives
//     up): the key becomes [Uncertain], for Config.Window.
//
// Nobody runs an uncertain key again before Config.Resolve has found out, or an operator has
// decided: with [Deduper.Mark] when the effect has happened, with [Deduper.Forget] when it may
// run again.
//
// It costs one round trip, and none if the attempt has declared it before. After an error do not
// begin, and return it as NotStarted: the declaration may be on record although its reply was
// lost. The error is [ErrLeaseLost] when the claim is not ours any more, an [*InputError] when
// no attempt runs under ctx, and otherwise one for which [OutcomeUnknown] is true. Where the
// handler runs without a claim (Observe mode, [FailOpen]) it writes nothing and returns nil, and
// in Observe mode it never fails an attempt.
func MarkIrreversible(ctx context.Context) error {
	c, err := claimUnder(ctx)
	if err != nil || c.shadow {
		return err
	}
	if err = c.danger(ctx); c.d.cfg.Mode == Observe {
		return forgiven(err)
	}
	return err
}

func (c *Claim) danger(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	if c.declared.Load() {
		return nil
	}
	if err := c.declare(ctx, driver.Renewal{Irreversible: true}); err != nil {
		return err
	}
	c.declared.Store(true)
	return nil
}

// claimUnder returns the claim whose attempt runs under ctx.
func claimUnder(ctx context.Context) (*Claim, error) {
	if ctx == nil {
		return nil, &InputError{Field: "Context", Reason: "is nil"}
	}
	a, ok := FromContext(ctx)
	if !ok {
		return nil, &InputError{Field: "Context", Reason: "is not that of an attempt"}
	}
	return a.claim, nil
}

// open returns an error if the attempt may no longer write.
func (c *Claim) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost:
		return ErrLeaseLost
	case c.ended != driver.StateAbsent:
		return &InputError{Field: "Context", Reason: "is that of an attempt that has ended"}
	}
	return nil
}

// declare renews the claim, and writes Irreversible or Steps of the attempt with it. Nil means that
// the store has acknowledged the change, and that the claim was ours then. An answer that
// takes longer than the lease says nothing about now.
func (c *Claim) declare(ctx context.Context, renewal driver.Renewal) error {
	cfg := &c.d.cfg
	renewal.ID, renewal.Token, renewal.Fence = c.id, c.token, c.fence
	renewal.Lease, renewal.Hold, renewal.Window = cfg.LeaseTTL, cfg.Hold, c.window
	for try := 0; ; try++ {
		sent := time.Now()
		ans := c.d.askRenewal(ctx, renewal)
		if ans.Err == nil && !ans.Held {
			c.loseFound("another owner was found by what the attempt had to say")
			return ErrLeaseLost
		}
		if err := c.open(); err != nil {
			return err
		}
		if ans.Err == nil {
			if time.Since(sent) >= cfg.LeaseTTL-margin(cfg.LeaseTTL) {
				return ErrLeaseLost
			}
			return nil
		}
		c.d.storeError(renewal.ID, ans.Err)
		if !passes(ans.Err) || try+1 == askTimes ||
			pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) != nil {
			return unknown(ans.Err)
		}
	}
}

// loseFound ends the renewal of a claim that the store says is not ours, and cancels its
// handler.
func (c *Claim) loseFound(why string) {
	c.mu.Lock()
	k := c.kept
	c.mu.Unlock()
	switch {
	case k == nil:
	case c.finishing.Load() > 0:
		c.d.renewals.abort(k) // its own end was probably executed first: the answer to that decides
	default:
		c.d.renewals.lose(k, why)
	}
}
