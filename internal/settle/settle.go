// Package settle makes the changes of a key that a person has confirmed: it resolves the key as
// done or as released, or forgets it. The command and the console ask the person, and this package
// writes.
//
// A question may stand for minutes. Meanwhile somebody else may resolve the key, and a worker may
// claim it. A write that relied on the state shown with the question would delete a record that
// says done, and the next message would run the effect twice. Or it would overwrite the claim of a
// worker that is running. So this package first claims an uncertain key, as a resolver does,
// compares everything with what was shown, and then ends the claim.
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

// lease is how long an uncertain key is held while it is settled. If this process dies meanwhile,
// the key is uncertain again afterwards.
const lease = 10 * time.Second

const day = 24 * time.Hour

// Key is a key as it was shown to the person who confirms the change.
type Key struct {
	ID driver.ID
	// Seen is the record that was shown.
	Seen dedup.Record
	// Window is how long the key is remembered as done, and the least time that a key stays
	// uncertain after a claim of it is given back. A layout with one window for all keys needs that
	// window here. Default 24 h.
	Window time.Duration
	// Hold is how long the fence of the key stays behind; see dedup.Config.Hold.
	Hold time.Duration
}

// Done records that the effect of an uncertain key has happened. The error is ErrMoved, or one of
// the store; after an error of the store it is unknown whether the change was made.
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

// Forget makes a key claimable again and returns its new state: absent, or released if it was
// uncertain. It leaves a key in flight alone. Errors are those of Done.
//
// An uncertain key is claimed first. A key that is done cannot be claimed: one round trip to the
// store lies between the read that compares it and the write.
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

// compare checks whether the key is as it was shown.
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

// end claims the uncertain key, and ends the claim in the way that the function how sets.
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
	// The key may have changed between the read and the claim. If our claim is not irreversible,
	// the key was free. If its attempt is not the next one, another attempt ran that the person did
	// not see. In both cases the claim is given back, and the key is free again, or uncertain
	// again.
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
