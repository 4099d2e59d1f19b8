package wire

import (
	"encoding/binary"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
)

// Claimable reports whether a claim of an absent key may carry a fence of our own making.
//
// The fence must be larger than every fence that the key ever had. The danger: we send a claim;
// meanwhile others claim the key, complete or release it, and its record expires; then the server
// executes our claim, at the very end of its lease, with an older fence. This can happen only if a
// record lives for less than the lease minus the time by which our estimate of the clock is behind.
// We count the lease as shorter by its margin of 1 % and 2 ms, and a record lives for at least a
// lease. So an estimate that is behind by less than the margin is good enough.
func Claimable(r *driver.ClaimRequest, at Reading) bool {
	return at.Known() && r.Hold >= r.Lease && at.Error < r.Lease/100+2*time.Millisecond
}

// ClaimRecord returns the record that a claim of an absent key writes.
func ClaimRecord(r *driver.ClaimRequest, at Reading) Record {
	return Record{
		State: redisscript.InProgress, Fence: at.Fence(), Attempt: 1,
		Span: uint64(redisscript.Millis(r.Hold)), Owner: r.Token,
		Fingerprint: r.Fingerprint, Origin: r.Origin, Label: r.Label, Plain: r.NoResult,
	}
}

// Acquired returns the answer to a claim that found nothing.
func Acquired(r *driver.ClaimRequest, at Reading) driver.Answer {
	return driver.Answer{Outcome: driver.Acquired, Record: driver.Record{
		State: driver.StateInProgress, Attempt: 1, Fence: at.Fence(), Remaining: r.Lease,
		Fingerprint: r.Fingerprint, Origin: digested(r.Origin), Label: r.Label,
	}}
}

// digested returns an origin as a store returns it.
func digested(o driver.Origin) driver.Origin {
	if o.Source != "" {
		o.Source, o.SourceDigest = "", o.Digest()
	}
	return o
}

// ClaimedRecord returns the record that the claim of a change has written, unless the claim was
// renewed with steps, or follows a Forget.
func ClaimedRecord(c *driver.Finish) Record {
	return Record{
		State: redisscript.InProgress, Fence: c.Fence, Attempt: uint32(c.Attempt),
		Span: uint64(redisscript.Millis(c.Hold)), Owner: c.Token,
		Fingerprint: c.Fingerprint, Origin: c.Origin, Label: c.Label,
	}
}

// DoneRecord returns the record that a plain completion writes.
func DoneRecord(c *driver.Finish, at Reading) Record {
	return Record{
		State: redisscript.Succeeded, Fence: c.Fence, Attempt: uint32(c.Attempt),
		Span: uint64(max(at.Millis(), 0)), Kept: uint64(max(redisscript.Millis(c.Window), 1)),
		Owner:    FirstHalf(c.Token),
		NoResult: c.NoResult, Fingerprint: c.Fingerprint, Origin: c.Origin, Label: c.Label,
		Plain: c.MayOverwrite,
	}
}

// DoneView returns a DoneRecord as callers see it.
func DoneView(c *driver.Finish) driver.Record {
	return driver.Record{
		State: driver.StateSucceeded, Attempt: c.Attempt, Fence: c.Fence, NoResult: c.NoResult,
		Fingerprint: c.Fingerprint, Origin: digested(c.Origin), Label: c.Label, Remaining: c.Window,
	}
}

// ClaimOf reports whether a value is the claim of a change, which must have a fence. It looks at
// nothing else: nearly every completion overwrites its own claim, which is not worth decoding.
func ClaimOf(value string, c *driver.Finish) bool {
	return len(value) >= HeaderSize+OwnerRest && value[0] == RecordVersion &&
		value[1] == redisscript.InProgress &&
		value[OwnerAt:OwnerAt+len(c.Token)] == string(c.Token[:]) &&
		binary.BigEndian.Uint64([]byte(value[FenceAt:FenceAt+8])) == c.Fence
}
