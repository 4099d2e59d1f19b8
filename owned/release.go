package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/redisscript"
)

// Release gives the partition up: call it after the last Finish of what should be marked. Claims that
// still run become claims of the inner store first, under the same tokens, so that the next owner finds
// them in flight and has no suspects; Context ends. It takes one round trip, and two more when something
// still runs. Where that fails the partition is renewed no more and lapses, and the error says why. It
// is nil for a partition that was lost or released before.
func (o *Ownership) Release(ctx context.Context) error {
	if ctx == nil {
		return input("Context", "is nil")
	}
	o.gate.Lock()
	o.released.Store(true)
	o.gate.Unlock()
	if why := o.lostFor(); why != nil {
		o.working.Wait()
		if !errors.Is(why, ErrReleased) {
			_ = o.giveUp(ctx) // where it is still ours, nobody need wait for its end
		}
		return nil
	}
	err := o.promoteAll(ctx)
	if err == nil {
		err = o.giveUp(ctx)
	}
	o.lose(ErrReleased)
	o.working.Wait()
	if err != nil {
		return fmt.Errorf("owned: Release: %w", err)
	}
	return nil
}

// promoteAll makes claims of the inner store of everything that has begun and not ended.
func (o *Ownership) promoteAll(ctx context.Context) error {
	var all []*promotion
	now := o.s.now()
	o.s.table.each(func(e *entry) bool {
		if e.o != o || e.state != begun {
			return true
		}
		if e.batch.fence.Load() == 0 { // nobody was told of it
			e.settle()
			return false
		}
		all = append(all, &promotion{e: e, lease: max(e.until-now, time.Millisecond), hold: e.hold})
		return true
	})
	o.s.promote(ctx, all)
	for _, p := range all {
		if p.err != nil {
			return p.err
		}
		if p.stale {
			return ErrLost
		}
	}
	return nil
}

// giveUp releases the partition at Redis. From here on it is not acquired again: a renewal that is under
// way finds that nobody holds it, and would take it for a whole lease.
func (o *Ownership) giveUp(ctx context.Context) error {
	o.again.Lock()
	o.gaveUp = true
	o.again.Unlock()
	o.mu.Lock()
	self, over := o.selfLocked(), o.over
	o.mu.Unlock()
	reply := o.s.send(ctx, redisscript.NewOwnRelease(o.keys(), self, over))[0]
	return reply.Err
}
