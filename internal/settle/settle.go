// Package settle makes the changes that a person has confirmed to a key: it is resolved as done or
// as released, or forgotten. The command and the console ask, and this package writes.
//
// A question may stand for minutes. Meanwhile somebody else may resolve the key, and a worker may
// claim it, so a write that follows the answer must not rest on what was shown with the question:
// it would delete a record that says done, and the next message would run the effect twice, or it
// would overwrite the claim of a worker that is at it. So an uncertain key is claimed first, as a
// resolver claims it, and the claim is ended; and everything is compared with what was shown.
package settle

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// ErrMoved is returned when the key is no longer as it was shown. Nothing was changed.
var ErrMoved = errors.New("the key has changed since it was looked at")

// lease is how long an uncertain key is held to settle it. If this process dies in between, the key
// is uncertain again afterwards.
const lease = 10 * time.Second

const day = 24 * time.Hour

// Key is a key as it was shown to the person who answers for the change.
type Key struct {
	ID driver.ID
	// Seen is the record that was shown.
	Seen dedup.Record
	// Window is how long the key is remembered as done, and at least how long one that is given
	// back is uncertain. A layout with one window for all keys wants that one. Default 24 h.
	Window time.Duration
	// Hold is how long the fence of the key stays behind; see dedup.Config.Hold.
	Hold time.Duration
}

// Done records that the effect of an uncertain key has happened. The error is ErrMoved, or one of
// the store: then it is unknown whether the change was made.
func Done(ctx context.Context, store dedup.Store, k Key) error {
	return k.end(ctx, store, func(c *driver.Finish) {
		c.State, c.EffectApplied = driver.StateSucceeded, true
	})
}

// Release records that the effect of an uncertain key has not happened, so that it may run again.
// Errors are those of Done.
func Release(ctx context.Context, store dedup.Store, k Key) error {
	return k.end(ctx, store, func(c *driver.Finish) { c.NotStarted = true })
}

// Forget makes a key claimable again and returns the state it then has: absent, or released where
// it was uncertain. A key in flight is left alone. Errors are those of Done.
//
// An uncertain key is claimed first. A key that is done cannot be claimed: between the look that
// compares it and the write lies one round trip to the store.
func Forget(ctx context.Context, store dedup.Store, k Key) (driver.State, error) {
	if k.Seen.State == driver.StateUncertain {
		return driver.StateReleased, Release(ctx, store, k)
	}
	if err := k.compare(ctx, store); err != nil {
		return 0, err
	}
	err := store.Forget(ctx, []driver.ID{k.ID}, k.Hold)[0]
	if errors.Is(err, dedup.ErrInFlight) {
		err = ErrMoved
	}
	return driver.StateAbsent, err
}

// compare looks whether the key is as it was shown.
func (k *Key) compare(ctx context.Context, store dedup.Store) error {
	now := store.Lookup(ctx, []driver.ID{k.ID})[0]
	switch {
	case now.Err != nil:
		return now.Err
	case now.Record.State != k.Seen.State || now.Record.Fence != k.Seen.Fence:
		return ErrMoved
	}
	return nil
}

// end claims the uncertain key and ends the claim as how says.
func (k *Key) end(ctx context.Context, store dedup.Store, how func(*driver.Finish)) error {
	if k.Seen.State != driver.StateUncertain {
		return ErrMoved
	}
	if err := k.compare(ctx, store); err != nil {
		return err
	}
	req := driver.ClaimRequest{
		ID: k.ID, Lease: lease, Hold: k.Hold, TakeUncertain: true,
		Origin: k.Seen.Origin, Label: k.Seen.Label, Fingerprint: k.Seen.Fingerprint,
	}
	_, _ = rand.Read(req.Token[:]) // never fails
	a := store.Claim(ctx, []driver.ClaimRequest{req})[0]
	switch {
	case a.Err != nil:
		return a.Err
	case a.Outcome != dedup.Acquired:
		return ErrMoved
	}
	c := driver.Finish{
		ID: k.ID, Token: req.Token, Fence: a.Record.Fence, Attempt: a.Record.Attempt, Hold: k.Hold,
		Window: cmp.Or(k.Window, day),
		Origin: req.Origin, Label: req.Label, Fingerprint: req.Fingerprint,
		State: driver.StateReleased,
	}
	// The key may have moved between the look and the claim. A claim that was not irreversible was
	// of a free key. One with another attempt than the next is of an attempt that nobody was shown.
	// Both are given back: the first is free again, the second uncertain again.
	ours := a.Record.Irreversible && a.Record.Attempt == k.Seen.Attempt+1
	if ours {
		how(&c)
	} else {
		c.NotAttempted = true
	}
	b := store.Finish(ctx, []driver.Finish{c})[0]
	switch {
	case b.Err != nil:
		return b.Err
	case !ours || !b.Written:
		return ErrMoved
	}
	return nil
}
