package redisadapter

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// maxLabel is what the contract of dedup.Store allows.
const maxLabel = 64

func claimCall(s *Store, r *dedup.ClaimRequest) (redisscript.Call, error) {
	if err := checkLease(r.Lease, r.Hold); err != nil {
		return redisscript.Call{}, err
	}
	if err := checkLabel(r.Label); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.NewClaim(s.key(r.ID), &redisscript.ClaimArgs{
		Token: r.Token, Lease: r.Lease, Hold: r.Hold,
		Fingerprint: encodeFingerprint(r.Fingerprint), Origin: encodeOrigin(r.Origin), Label: r.Label,
	}), nil
}

func renewCall(s *Store, c *dedup.Change) (redisscript.Call, error) {
	if err := checkLease(c.Lease, c.Hold); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.NewRenew(s.key(c.ID), c.Token, c.Lease, c.Hold), nil
}

func finishCall(s *Store, c *dedup.Change) (redisscript.Call, error) {
	args := redisscript.FinishArgs{
		Token: c.Token, Landed: c.Landed, Fence: c.Fence, Attempt: c.Attempt,
		Fingerprint: encodeFingerprint(c.Fingerprint), Origin: encodeOrigin(c.Origin), Label: c.Label,
	}
	if err := setEnd(&args, c); err != nil {
		return redisscript.Call{}, err
	}
	if err := checkAttempt(c); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.NewFinish(s.key(c.ID), &args), nil
}

func lookupCall(s *Store, id *dedup.ID) (redisscript.Call, error) {
	return redisscript.NewLookup(s.key(*id)), nil
}

func forgetCall(hold time.Duration) func(*Store, *dedup.ID) (redisscript.Call, error) {
	return func(s *Store, id *dedup.ID) (redisscript.Call, error) {
		if hold < 0 {
			return redisscript.Call{}, input("hold", "is negative")
		}
		return redisscript.NewForget(s.key(*id), hold), nil
	}
}

// setEnd fills in what depends on the state that is to be reached.
func setEnd(args *redisscript.FinishArgs, c *dedup.Change) error {
	switch c.State {
	case dedup.StateSucceeded, dedup.StateFailed:
		if c.Window <= 0 {
			return input("Window", "is not positive")
		}
		args.State, args.Keep = redisscript.Succeeded, c.Window
		if c.State == dedup.StateFailed {
			args.State = redisscript.Failed
		}
		args.Result, args.NoResult = c.Result, c.NoResult
	case dedup.StateReleased:
		if c.Hold < 0 {
			return input("Hold", "is negative")
		}
		args.State, args.Keep = redisscript.Released, c.Hold
	default:
		return input("State", "is "+c.State.String()+", which is no end")
	}
	return nil
}

func checkAttempt(c *dedup.Change) error {
	switch {
	case c.Landed && c.State != dedup.StateSucceeded:
		return input("Landed", "needs StateSucceeded")
	case c.Landed && c.Fence > redisscript.MaxFence:
		return input("Fence", fmt.Sprintf("is larger than %d", uint64(redisscript.MaxFence)))
	case c.Attempt < 0 || c.Attempt > math.MaxInt32:
		return input("Attempt", "is out of range")
	}
	return checkLabel(c.Label)
}

func checkLease(lease, hold time.Duration) error {
	if lease <= 0 {
		return input("Lease", "is not positive")
	}
	if hold < 0 {
		return input("Hold", "is negative")
	}
	return nil
}

func checkLabel(label string) error {
	if len(label) > maxLabel {
		return input("Label", fmt.Sprintf("has %d bytes, at most %d are allowed", len(label), maxLabel))
	}
	return nil
}

func input(field, reason string) error {
	return &dedup.InputError{Field: field, Reason: reason}
}

func encodeFingerprint(f dedup.Fingerprint) string {
	if f == (dedup.Fingerprint{}) {
		return ""
	}
	return string(f[:])
}

// cloneResult is the result of a change that was written just now.
func cloneResult(c *dedup.Change) []byte {
	if c.State == dedup.StateReleased {
		return nil
	}
	return bytes.Clone(c.Result)
}
