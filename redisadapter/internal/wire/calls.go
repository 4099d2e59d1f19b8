package wire

import (
	"bytes"
	"fmt"
	"math"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
)

// ClaimCall returns the script for a request; asks becomes ClaimArgs.Asks of
// [redisscript.ClaimArgs].
func ClaimCall(key string, r *driver.ClaimRequest, asks bool) redisscript.Call {
	return redisscript.NewClaim(key, &redisscript.ClaimArgs{
		Token: r.Token, Lease: r.Lease, Hold: r.Hold,
		Fingerprint: encodeFingerprint(r.Fingerprint), Origin: EncodeOrigin(r.Origin),
		Label:         r.Label,
		TakeUncertain: r.TakeUncertain, TakeOverOlderGeneration: r.TakeOverOlderGeneration,
		OnlyNew: r.OnlyNew, Plain: r.NoResult, Asks: asks,
	})
}

// RenewCall returns the script for a renewal.
func RenewCall(key string, c *driver.Renewal) (redisscript.Call, error) {
	if err := c.Check(); err != nil {
		return redisscript.Call{}, err
	}
	return redisscript.NewDeclare(key, &redisscript.RenewArgs{
		Token: c.Token, Lease: c.Lease, Hold: c.Hold, Irreversible: c.Irreversible,
		Window: c.Window,
		Steps:  c.Steps, Fence: c.Fence,
	}), nil
}

// FinishCall returns the script for a change that CheckFinish accepts.
func FinishCall(key string, c *driver.Finish) redisscript.Call {
	args := redisscript.FinishArgs{
		Token: c.Token, EffectApplied: c.EffectApplied, Fence: c.Fence, Attempt: c.Attempt,
		Fingerprint: encodeFingerprint(c.Fingerprint), Origin: EncodeOrigin(c.Origin),
		Label: c.Label,
		State: finishStates[c.State], Keep: c.Window, Result: c.Result, NoResult: c.NoResult,
	}
	if c.State == driver.StateReleased {
		args.Keep, args.Result, args.NoResult = c.Hold, nil, false
		args.Uncertain, args.NotStarted, args.NotAttempted = max(c.Hold, c.Window), c.NotStarted,
			c.NotAttempted
	}
	return redisscript.NewFinish(key, &args)
}

var finishStates = map[driver.State]byte{
	driver.StateSucceeded: redisscript.Succeeded,
	driver.StateFailed:    redisscript.Failed,
	driver.StateReleased:  redisscript.Released,
}

// CheckFinish names what is wrong with a change in every layout, before anything is sent.
func CheckFinish(c *driver.Finish) error {
	if err := c.Check(); err != nil {
		return err
	}
	switch {
	case c.With != nil:
		return Input("Completion.With",
			fmt.Sprintf("is a %T, and not a transaction of this store", c.With))
	case c.EffectApplied && c.Fence > redisscript.MaxFence:
		return Input("Fence", fmt.Sprintf("is larger than %d", uint64(redisscript.MaxFence)))
	case c.Attempt < 0 || c.Attempt > math.MaxInt32:
		return Input("Attempt", "is out of range")
	}
	return nil
}

// Input returns the error of a value that makes no sense.
func Input(field, reason string) error {
	return &driver.InputError{Field: field, Reason: reason}
}

func encodeFingerprint(f driver.Fingerprint) string {
	if f == (driver.Fingerprint{}) {
		return ""
	}
	return string(f[:])
}

// CloneResult returns a copy of the result of a change that was just written.
func CloneResult(c *driver.Finish) []byte {
	if c.State == driver.StateReleased {
		return nil
	}
	return bytes.Clone(c.Result)
}
