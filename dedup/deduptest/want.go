package deduptest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// describe returns an answer in one line, without its result.
func describe(a driver.Answer) string {
	return fmt.Sprintf("outcome=%v mine=%t held=%t written=%t state=%v attempt=%d fence=%d remaining=%v",
		a.Outcome, a.Mine, a.Held, a.Written, a.Record.State, a.Record.Attempt, a.Record.Fence,
		a.Record.Remaining)
}

// wantOutcome stops the check when a claim found something else: what follows would
// only be noise.
func (c *check) wantOutcome(what string, a driver.Answer, want driver.Outcome) {
	c.Helper()
	if a.Outcome != want {
		c.Fatalf("%s: want outcome %v, got %s", what, want, describe(a))
	}
}

// wantEnd compares Held and Written.
func (c *check) wantEnd(what string, a driver.Answer, held, written bool) {
	c.Helper()
	if a.Held != held || a.Written != written {
		c.Fatalf("%s: want held=%t written=%t, got %s", what, held, written, describe(a))
	}
}

func (c *check) wantState(what string, rec driver.Record, want driver.State) {
	c.Helper()
	if rec.State != want {
		c.Fatalf("%s: want state %v, got %v", what, want, rec.State)
	}
}

// wantClaim compares attempt and fence.
func (c *check) wantClaim(what string, rec driver.Record, attempt int, fence uint64) {
	c.Helper()
	if c.h.DoneOnly && rec.State == driver.StateSucceeded {
		return
	}
	if rec.Attempt != attempt || rec.Fence != fence {
		c.Errorf("%s: want attempt %d and fence %d, got %d and %d", what, attempt, fence,
			rec.Attempt, rec.Fence)
	}
}

func (c *check) wantResult(what string, rec driver.Record, want []byte) {
	c.Helper()
	if c.h.DoneOnly && rec.State == driver.StateSucceeded {
		want = nil
	}
	if !bytes.Equal(rec.Result, want) {
		c.Errorf("%s: result of %d bytes differs from the %d bytes that were stored", what,
			len(rec.Result), len(want))
	}
	if (rec.Result == nil) != (want == nil) {
		c.Errorf("%s: want nil result %t, got %t", what, want == nil, rec.Result == nil)
	}
}

// wantRemaining insists that Remaining is above zero and at most limit. A millisecond is allowed
// for stores that round up.
func (c *check) wantRemaining(what string, rec driver.Record, limit time.Duration) {
	c.Helper()
	if c.h.DoneOnly && rec.State == driver.StateSucceeded {
		limit *= 3
	}
	if rec.Remaining <= 0 || rec.Remaining > limit+time.Millisecond {
		c.Errorf("%s: want 0 < remaining <= %v, got %v", what, limit, rec.Remaining)
	}
}

// wantUnchanged insists that a key is as it was: time may have gone by, and nothing
// else.
func (c *check) wantUnchanged(what string, before, after driver.Record) {
	c.Helper()
	if diff := difference(before, after); diff != "" {
		c.Errorf("%s: the key has changed: %s", what, diff)
	}
}

// difference names the first field that differs between two looks at a key.
func difference(before, after driver.Record) string {
	// A store may compute an age with an estimate of its server's clock. The estimate may be
	// wrong by the round trip that it came from.
	const rounding, roundTrip = time.Millisecond, 250 * time.Millisecond
	switch {
	case before.State != after.State:
		return fmt.Sprintf("state %v became %v", before.State, after.State)
	case before.Attempt != after.Attempt:
		return fmt.Sprintf("attempt %d became %d", before.Attempt, after.Attempt)
	case before.Fence != after.Fence:
		return fmt.Sprintf("fence %d became %d", before.Fence, after.Fence)
	case !bytes.Equal(before.Result, after.Result) ||
		(before.Result == nil) != (after.Result == nil):
		return fmt.Sprintf("result of %d bytes became another of %d", len(before.Result),
			len(after.Result))
	case before.NoResult != after.NoResult:
		return fmt.Sprintf("NoResult %t became %t", before.NoResult, after.NoResult)
	case before.Irreversible != after.Irreversible:
		return fmt.Sprintf("danger %t became %t", before.Irreversible, after.Irreversible)
	case !bytes.Equal(before.Steps, after.Steps):
		return fmt.Sprintf("steps of %d bytes became others of %d", len(before.Steps),
			len(after.Steps))
	case before.Fingerprint != after.Fingerprint:
		return "the fingerprint changed"
	case !sameOrigin(before.Origin, after.Origin):
		return fmt.Sprintf("origin %+v became %+v", before.Origin, after.Origin)
	case before.Label != after.Label:
		return fmt.Sprintf("label %q became %q", before.Label, after.Label)
	case after.Remaining > before.Remaining+rounding+roundTrip:
		return fmt.Sprintf("remaining %v grew to %v", before.Remaining, after.Remaining)
	case after.Age < before.Age-roundTrip:
		return fmt.Sprintf("age %v fell to %v", before.Age, after.Age)
	}
	return ""
}

// sameOrigin compares what stores keep of an origin.
func sameOrigin(a, b driver.Origin) bool {
	return a.Digest() == b.Digest() && a.Partition == b.Partition && a.Offset == b.Offset &&
		a.Generation == b.Generation
}
