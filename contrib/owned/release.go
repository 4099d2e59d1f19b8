package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// Release gives the partition up: call it after the last Finish of what should be marked. Keys that
// still run become claims of the inner store first, under the same tokens, so that the next owner
// finds them in flight and has no suspects. Then Context ends. Release takes one round trip, and
// two more when a key still runs. If Release fails, the partition is not renewed any more and
// lapses; the error says why. It returns nil for a partition that was lost or released before.
func (o *Ownership) Release(ctx context.Context) error {
	if ctx == nil {
		return input("Context", "is nil")
	}
	if !o.stop() && o.lostFor() == nil {
		select { // another call releases it
		case <-o.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("owned: Release: %w", context.Cause(ctx))
		}
	}
	defer o.letGoAll()
	if why := o.lostFor(); why != nil {
		o.working.Wait()
		if !errors.Is(why, ErrReleased) {
			_ = o.giveUp(ctx) // if it is still ours, nobody need wait for its lease to end
		}
		return nil
	}
	err := o.handOver(ctx, ErrReleased)
	o.working.Wait()
	if err != nil {
		return fmt.Errorf("owned: Release: %w", err)
	}
	return nil
}

// stop keeps new keys from beginning. It reports whether this is the first call; the caller of the
// first call hands over.
func (o *Ownership) stop() bool {
	o.gate.Lock()
	defer o.gate.Unlock()
	return o.released.CompareAndSwap(false, true)
}

// handOver gives the partition up after stop. Context ends with why as its cause, even if handOver
// fails.
func (o *Ownership) handOver(ctx context.Context, why error) error {
	err := o.promoteAll(ctx)
	if err == nil {
		err = o.giveUp(ctx)
	}
	o.lose(why)
	return err
}

// noteMap notes which version of the map the partition knows. If it is later than the version under
// which we acquired, keys have moved: some keys that come here now belong to another partition.
// Once the source is not shared any more, the owner of that partition does not look for the marks
// that we write here. So the ownership ends, as by Release, and the caller acquires again under the
// new count.
func (o *Ownership) noteMap(version uint64) {
	o.mu.Lock()
	was := o.mapver
	o.mu.Unlock()
	if version <= was || o.released.Load() {
		return
	}
	o.alongside(func() { // in a goroutine, because the caller may hold the gate
		if !o.stop() {
			return
		}
		ctx, cancel := context.WithTimeout(o.ctx, o.s.opts.Lease/renewals)
		defer cancel()
		err := o.handOver(ctx,
			fmt.Errorf("%w: its source has version %d of the map by now, and it was acquired under %d", ErrLost, version, was))
		if err != nil {
			o.s.opts.Logger.Warn("owned: a partition was not handed over, and lapses", "source",
				o.part.Source, "partition", o.part.Number, "error", err)
		}
	})
}

// promoteAll promotes every key that has begun and not ended: it becomes a claim of the inner
// store.
func (o *Ownership) promoteAll(ctx context.Context) error {
	var all []*promotion
	now := o.s.now()
	for _, e := range o.begun() {
		sh := o.s.table.shard(e.hash)
		sh.mu.Lock()
		switch {
		case e.state != begun:
		case e.batch.fence.Load() == 0: // its claim was not granted
			e.settle()
			sh.drop(e)
		default:
			all = append(all, &promotion{e: e, lease: max(e.until-now, time.Millisecond),
				hold: e.hold})
		}
		sh.mu.Unlock()
	}
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

// begun returns the entries of keys that have begun here, and may not have ended.
func (o *Ownership) begun() []*entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*entry
	for b := range o.begins {
		for _, e := range b.entries {
			if e != nil {
				all = append(all, e)
			}
		}
	}
	return all
}

// giveUp releases the partition at Redis. It first keeps this Ownership from acquiring the
// partition again. Otherwise a renewal under way would find that nobody holds the partition, and
// acquire it for a whole lease.
func (o *Ownership) giveUp(ctx context.Context) error {
	o.again.Lock()
	o.gaveUp = true
	given := o.given
	o.again.Unlock()
	o.mu.Lock()
	self, over := o.selfLocked(), o.over
	o.mu.Unlock()
	self.Epoch = max(self.Epoch, given)
	reply := o.s.send(ctx, script.NewRelease(o.keys(), self, over))[0]
	return reply.Err
}
