package redisadapter

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

func (s *Store) checkClaim(r *dedup.ClaimRequest) error {
	if err := r.Check(); err != nil || s.buckets == nil {
		return err
	}
	return s.checkCompactClaim(r)
}

func claimCall(s *Store, r *dedup.ClaimRequest) redisscript.Call {
	return redisscript.NewClaim(s.key(r.ID), &redisscript.ClaimArgs{
		Token: r.Token, Lease: r.Lease, Hold: r.Hold,
		Fingerprint: encodeFingerprint(r.Fingerprint), Origin: wire.EncodeOrigin(r.Origin),
		Label:         r.Label,
		TakeUncertain: r.TakeUncertain, TakeOverOlderGeneration: r.TakeOverOlderGeneration,
		FirstOnly: r.FirstOnly,
	})
}

func renewCall(s *Store, c *dedup.Renewal) (redisscript.Call, error) {
	if err := c.Check(); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.NewDeclare(s.key(c.ID), &redisscript.RenewArgs{
		Token: c.Token, Lease: c.Lease, Hold: c.Hold, Danger: c.Danger, Window: c.Window,
		Steps: c.Steps, Fence: c.Fence,
	}), nil
}

// finishCall is for a change that checkFinish accepts.
func finishCall(s *Store, c *dedup.Finish) redisscript.Call {
	args := redisscript.FinishArgs{
		Token: c.Token, Landed: c.Landed, Fence: c.Fence, Attempt: c.Attempt,
		Fingerprint: encodeFingerprint(c.Fingerprint), Origin: wire.EncodeOrigin(c.Origin),
		Label: c.Label,
		State: finishStates[c.State], Keep: c.Window, Result: c.Result, NoResult: c.NoResult,
	}
	if c.State == dedup.StateReleased {
		args.Keep, args.Result, args.NoResult = c.Hold, nil, false
		args.Uncertain, args.NotBegun, args.Unused = max(c.Hold, c.Window), c.NotBegun, c.Unused
	}
	return redisscript.NewFinish(s.key(c.ID), &args)
}

var finishStates = map[dedup.State]byte{
	dedup.StateSucceeded: redisscript.Succeeded,
	dedup.StateFailed:    redisscript.Failed,
	dedup.StateReleased:  redisscript.Released,
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

// checkFinish names what is wrong with a change, before anything is sent.
func (s *Store) checkFinish(c *dedup.Finish) error {
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case c.With != nil:
		return input("Completion.With",
			fmt.Sprintf("is a %T, and not a transaction of this store", c.With))
	case c.Landed && c.Fence > redisscript.MaxFence:
		return input("Fence", fmt.Sprintf("is larger than %d", uint64(redisscript.MaxFence)))
	case c.Attempt < 0 || c.Attempt > math.MaxInt32:
		return input("Attempt", "is out of range")
	case s.buckets != nil:
		return s.checkCompactFinish(c)
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
func cloneResult(c *dedup.Finish) []byte {
	if c.State == dedup.StateReleased {
		return nil
	}
	return bytes.Clone(c.Result)
}
