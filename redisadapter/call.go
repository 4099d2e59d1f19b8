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

// The arguments below are copies, never the caller's own buffers: a pipeline that was
// left behind when its context ended may still be sending them.

func claimCall(s *Store, r *dedup.ClaimRequest) (redisscript.Call, error) {
	if err := checkLease(r.Lease, r.Hold); err != nil {
		return redisscript.Call{}, err
	}
	if err := checkLabel(r.Label); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.Call{Script: redisscript.Claim, Key: s.key(r.ID), Args: []any{
		string(r.Token[:]), redisscript.Millis(r.Lease), redisscript.Millis(r.Hold),
		encodeFingerprint(r.Fingerprint), encodeOrigin(r.Origin), r.Label,
	}}, nil
}

func renewCall(s *Store, c *dedup.Change) (redisscript.Call, error) {
	if err := checkLease(c.Lease, c.Hold); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.Call{Script: redisscript.Renew, Key: s.key(c.ID), Args: []any{
		string(c.Token[:]), redisscript.Millis(c.Lease), redisscript.Millis(c.Hold),
	}}, nil
}

func finishCall(s *Store, c *dedup.Change) (redisscript.Call, error) {
	state, keep, err := checkFinish(c)
	if err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.Call{Script: redisscript.Finish, Key: s.key(c.ID), Args: []any{
		string(c.Token[:]), state, keep,
		bit(c.Landed), c.Fence, c.Attempt, bit(c.NoResult && state != storedReleased),
		encodeFingerprint(c.Fingerprint), encodeOrigin(c.Origin), c.Label,
		bit(c.Result != nil && state != storedReleased), string(c.Result),
	}}, nil
}

func lookupCall(s *Store, id *dedup.ID) (redisscript.Call, error) {
	return redisscript.Call{Script: redisscript.Lookup, Key: s.key(*id)}, nil
}

func forgetCall(hold time.Duration) func(*Store, *dedup.ID) (redisscript.Call, error) {
	return func(s *Store, id *dedup.ID) (redisscript.Call, error) {
		if hold < 0 {
			return redisscript.Call{}, input("hold", "is negative")
		}
		keep := max(redisscript.Millis(hold), 2)
		return redisscript.Call{Script: redisscript.Forget, Key: s.key(*id), Args: []any{keep}}, nil
	}
}

// checkFinish returns the state as it is stored, and for how many ms.
func checkFinish(c *dedup.Change) (state byte, keep int64, err error) {
	switch c.State {
	case dedup.StateSucceeded, dedup.StateFailed:
		if c.Window <= 0 {
			return 0, 0, input("Window", "is not positive")
		}
		state, keep = storedSucceeded, redisscript.Millis(c.Window)
		if c.State == dedup.StateFailed {
			state = storedFailed
		}
	case dedup.StateReleased:
		if c.Hold < 0 {
			return 0, 0, input("Hold", "is negative")
		}
		// Redis knows no expiry of zero; one millisecond is as good.
		state, keep = storedReleased, max(redisscript.Millis(c.Hold), 1)
	default:
		return 0, 0, input("State", "is "+c.State.String()+", which is no end")
	}
	switch {
	case c.Landed && c.State != dedup.StateSucceeded:
		err = input("Landed", "needs StateSucceeded")
	case c.Landed && c.Fence > redisscript.MaxFence:
		err = input("Fence", fmt.Sprintf("is larger than %d", uint64(redisscript.MaxFence)))
	case c.Attempt < 0 || c.Attempt > math.MaxInt32:
		err = input("Attempt", "is out of range")
	default:
		err = checkLabel(c.Label)
	}
	return state, keep, err
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

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
