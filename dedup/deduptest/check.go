package deduptest

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

const (
	// long is a lease, hold or window that no check outlives, fake clock or real.
	long = time.Hour
	// patience is how long one call of a healthy store may take.
	patience = 2 * time.Minute
)

// check is one property under test: the test, the store, and calls that fail the test when an
// item has no answer. Only methods that say so may be called from another goroutine.
type check struct {
	testing.TB
	h     Harness
	store driver.Store
	moved time.Duration // how far Advance has moved the clock
}

// now returns the time of a clock that Advance moves, too.
func (c *check) now() time.Time { return time.Now().Add(c.moved) }

// keeps returns those of the states that the store can keep.
func (c *check) keeps(states ...driver.State) []driver.State {
	return slices.DeleteFunc(states, func(s driver.State) bool {
		return c.h.SeenOnly && s == driver.StateFailed
	})
}

// ends returns the states an attempt can end in.
func (c *check) ends() []driver.State {
	return c.keeps(driver.StateSucceeded, driver.StateFailed, driver.StateReleased)
}

func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func newToken() (token driver.Token) {
	_, _ = rand.Read(token[:])
	return token
}

// newFingerprint returns a random fingerprint of the given version.
func newFingerprint(version byte) (f driver.Fingerprint) {
	_, _ = rand.Read(f[:])
	f[0] = version
	return f
}

// pass lets a little more than d go by on the store's clock.
func (c *check) pass(d time.Duration) {
	d += d/4 + 2*time.Millisecond
	if c.h.Advance != nil {
		c.h.Advance(d)
		c.moved += d
		return
	}
	<-time.After(d)
}

// calm returns the context of one call. It is safe for concurrent use.
func (c *check) calm() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), patience)
}

// claims sends one batch and insists on one answer per item. It is safe for concurrent use, and
// returns nil when an answer is missing.
func (c *check) claims(reqs ...driver.ClaimRequest) []driver.Answer {
	ctx, cancel := c.calm()
	defer cancel()
	if c.h.DoneOnly {
		reqs = slices.Clone(reqs)
		for i := range reqs {
			reqs[i].Fingerprint = driver.Fingerprint{}
		}
	}
	return c.counted("Claim", c.store.Claim(ctx, reqs), len(reqs))
}

// finishes is like claims.
func (c *check) finishes(changes ...driver.Finish) []driver.Answer {
	ctx, cancel := c.calm()
	defer cancel()
	changes = slices.Clone(changes)
	for i := range changes {
		if !c.h.DoneOnly {
			continue
		}
		changes[i].Fingerprint = driver.Fingerprint{}
		if c.h.SeenOnly || changes[i].State == driver.StateSucceeded {
			changes[i].Result = nil
		}
	}
	return c.counted("Finish", c.store.Finish(ctx, changes), len(changes))
}

// renews is like claims.
func (c *check) renews(renewals ...driver.Renewal) []driver.Answer {
	ctx, cancel := c.calm()
	defer cancel()
	return c.counted("Renew", c.store.Renew(ctx, renewals), len(renewals))
}

// lookups is like claims.
func (c *check) lookups(ids ...driver.ID) []driver.Answer {
	ctx, cancel := c.calm()
	defer cancel()
	return c.counted("Lookup", c.store.Lookup(ctx, ids), len(ids))
}

// forgets is like claims.
func (c *check) forgets(hold time.Duration, ids ...driver.ID) []error {
	ctx, cancel := c.calm()
	defer cancel()
	errs := c.store.Forget(ctx, ids, hold)
	if len(errs) != len(ids) {
		c.Errorf("Forget answered %d of %d items", len(errs), len(ids))
		return make([]error, len(ids))
	}
	return errs
}

func (c *check) counted(call string, answers []driver.Answer, want int) []driver.Answer {
	if len(answers) != want {
		c.Errorf("%s answered %d of %d items", call, len(answers), want)
		return make([]driver.Answer, want)
	}
	for i := range answers {
		if a := &answers[i]; a.Err != nil && (a.Outcome != driver.Unknown || a.Held || a.Written) {
			c.Errorf("%s of item %d answers %s together with the error %v", call,
				i, describe(*a), a.Err)
		}
	}
	return answers
}

// learnt fails the test when the answer is an error.
func (c *check) learnt(call string, a driver.Answer) driver.Answer {
	c.Helper()
	if a.Err != nil {
		c.Fatalf("%s: %v", call, a.Err)
	}
	return a
}

func (c *check) lookup(id driver.ID) driver.Record {
	c.Helper()
	return c.learnt("Lookup", c.lookups(id)[0]).Record
}

func (c *check) forget(id driver.ID, hold time.Duration) {
	c.Helper()
	if err := c.forgets(hold, id)[0]; err != nil {
		c.Fatalf("Forget: %v", err)
	}
}
