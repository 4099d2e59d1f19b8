package deduptest

import (
	"errors"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// checkWindowTold expects a store to say which window it refuses, and to refuse it before the
// effect.
func checkWindowTold(c *check) {
	limits := driver.LimitsOf(c.store)
	window, hold := limits.Window, limits.MaxHold
	switch {
	case c.h.OneWindow && window != long:
		c.Errorf("a store with one window for all keys says that it is %v, want %v", window, long)
		return
	case !c.h.OneWindow && window != 0:
		c.Errorf("the store says that it has one window for all keys, %v; such a one is tested with Harness.OneWindow", window)
		return
	}
	c.wantPossible("the window of an end", func(r *driver.ClaimRequest) { r.Window = long }, true)
	c.wantPossible("another window", func(r *driver.ClaimRequest) {
		r.Window = 2 * long
	}, !c.h.OneWindow)
	if hold != 0 {
		c.wantPossible("the longest hold", func(r *driver.ClaimRequest) { r.Hold = hold }, true)
		c.wantPossible("a longer hold", func(r *driver.ClaimRequest) {
			r.Hold = hold + time.Second
		}, false)
	}
	if window != 0 {
		c.wantEndRefused(2 * window)
	}
}

// wantPossible claims a new key with a request that ask has changed.
func (c *check) wantPossible(what string, ask func(*driver.ClaimRequest), possible bool) {
	c.Helper()
	o := c.stranger(newID())
	req := o.request()
	ask(&req)
	a := c.claims(req)
	if a == nil {
		return
	}
	if possible {
		c.wantOutcome("a claim with "+what, a[0], driver.Acquired)
		return
	}
	c.wantInput("a claim with "+what, a[0].Err)
	if rec := c.lookup(o.id); rec.State != driver.StateAbsent && rec.State != driver.StateReleased {
		c.Errorf("a claim that was refused for %s left the key %v", what, rec.State)
	}
}

// wantEndRefused ends a claim with a window that the store does not have.
func (c *check) wantEndRefused(window time.Duration) {
	c.Helper()
	o := c.acquire(newID(), long, long)
	change := o.change(driver.StateSucceeded)
	change.Window = window
	if a := c.finishes(change); a != nil {
		c.wantInput("an end with another window", a[0].Err)
	}
}

func (c *check) wantInput(what string, err error) {
	c.Helper()
	var input *driver.InputError
	if !errors.As(err, &input) {
		c.Errorf("%s: want an InputError, got %v", what, err)
	}
}
