package deduptest

import (
	"context"
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

func checkForgetLive(c *check) {
	live, done, absent := c.acquire(newID(), long, long),
		c.ended(newID(), driver.StateSucceeded, nil), newID()
	before := c.lookup(live.id)
	errs := c.forgets(long, live.id, done.id, absent)
	if !errors.Is(errs[0], driver.ErrInFlight) {
		c.Errorf("Forget under a live lease: want ErrInFlight, got %v", errs[0])
	}
	for i, err := range errs[1:] {
		if err != nil {
			c.Errorf("Forget of item %d, in a batch with a live one: %v", i+1, err)
		}
	}
	c.wantUnchanged("Forget under a live lease", before, c.lookup(live.id))
	c.wantState("Forget of a finished key", c.lookup(done.id), driver.StateAbsent)
	live.mustFinish(live.change(driver.StateSucceeded))
}

// forgettable makes one key in every state that can be forgotten.
func (c *check) forgettable() []*owner {
	c.Helper()
	owners := []*owner{c.lapsed(newID())}
	for _, state := range c.ends() {
		owners = append(owners, c.ended(newID(), state, nil))
	}
	return owners
}

func checkForgetEnded(c *check) {
	for _, old := range c.forgettable() {
		c.forget(old.id, long)
		c.wantState("a forgotten key", c.lookup(old.id), driver.StateAbsent)
		c.forget(old.id, long) // twice is not an error
		next := c.acquire(old.id, long, long)
		if next.attempt != 1 {
			c.Errorf("a forgotten key starts with attempt %d", next.attempt)
		}
		if rec := c.lookup(old.id); rec.Result != nil {
			c.Error("a new claim carries the result that was forgotten")
		}
		next.mustFinish(next.change(driver.StateSucceeded))
	}
}

func checkForgetOlderOwner(c *check) {
	for _, old := range c.forgettable() {
		c.forget(old.id, long)
		for _, state := range c.ends() {
			c.wantEnd("an owner from before the Forget", old.finish(old.change(state)),
				false, false)
		}
		c.wantEnd("a landed effect from before the Forget", old.finish(old.landed("old")),
			false, false)
		if a := old.renew(long); a.Held {
			c.Error("an owner from before the Forget renews")
		}
		c.wantState("after an owner from before the Forget", c.lookup(old.id), driver.StateAbsent)
	}
}

func checkForgetFence(c *check) {
	for _, old := range c.forgettable() {
		c.forget(old.id, long)
		if next := c.acquire(old.id, long, long); next.fence <= old.fence {
			c.Errorf("after Forget: fence %d does not grow over %d", next.fence, old.fence)
		}
	}
	for _, old := range c.forgettable() {
		c.forget(old.id, c.h.Lease)
		c.pass(c.h.Lease)
		if next := c.acquire(old.id, long, long); next.fence <= old.fence {
			c.Errorf("after the hold of a Forget: fence %d does not grow over %d",
				next.fence, old.fence)
		}
	}
}

// told returns the number that the store reports for its Forgets.
func (c *check) told(store driver.ForgetCounter) uint64 {
	c.Helper()
	ctx, cancel := c.calm()
	defer cancel()
	n, err := store.Forgets(ctx)
	if err != nil {
		c.Fatalf("Forgets: %v", err)
	}
	return n
}

// checkForgetTold checks every store that keeps the same keys, because another process asks its own
// store.
func checkForgetTold(c *check) {
	store, ok := c.store.(driver.ForgetCounter)
	if !ok {
		return
	}
	tellers := []driver.ForgetCounter{store}
	shared := c.ended(newID(), driver.StateSucceeded, nil)
	if other := c.h.New(c.TB); other.Lookup(c.Context(),
		[]driver.ID{shared.id})[0].Record.State == driver.StateSucceeded {
		if t, ok := other.(driver.ForgetCounter); ok {
			tellers = append(tellers, t)
		}
	}
	seen := make([]map[uint64]bool, len(tellers))
	for i, t := range tellers {
		seen[i] = map[uint64]bool{c.told(t): true}
	}
	// Forgetting an absent key counts, too: the key may have expired, or been forgotten by a call
	// whose answer was lost, while caches still know it.
	for _, id := range []driver.ID{shared.id, shared.id,
		newID(), c.ended(newID(), driver.StateSucceeded, nil).id, newID()} {
		c.forget(id, long)
		for i, t := range tellers {
			n := c.told(t)
			if seen[i][n] {
				c.Errorf("store %d: after Forget the number is %d once more", i, n)
			}
			seen[i][n] = true
		}
	}
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	if n, err := store.Forgets(ctx); !errors.Is(err, context.Canceled) {
		c.Errorf("Forgets under a canceled context: %d, %v", n, err)
	}
}
