package dedup

import "time"

// Observer is told what a [Deduper] does. Every hook may be nil, is called on the
// goroutine that did the work, concurrently, and must return quickly. It has the shape
// of net/http/httptrace.ClientTrace, so that hooks can be added without breaking
// anybody.
type Observer struct {
	// Claimed: a claim, or a Seen, was answered. Outcome, Cause, Age and Attempt are
	// set; Cached tells that no store was asked.
	Claimed func(Event)
	// WouldSkip: in Observe mode, Outcome is what Enforce would have answered.
	WouldSkip func(Event)
	// Ended: Complete, Fail, Release or Mark was written. State is what was asked.
	Ended func(Event)
	// LeaseLost: a renewal or an end found another owner, or the lease ran out.
	LeaseLost func(Event)
	// StoreError: a store could not answer an item. Err tells why.
	StoreError func(Event)
	// FailedOpen: the effect runs without a claim, as Config.FailOpen allows.
	FailedOpen func(Event)
}

// Event is what an [Observer] is told. Only the fields its hook names are set.
type Event struct {
	// ID is the digest of the key.
	ID ID
	// Outcome of a claim.
	Outcome Outcome
	// Cause of a duplicate, empty otherwise.
	Cause Cause
	// Age of a duplicate: the time since its key was done, by the store's clock.
	Age time.Duration
	// Attempt of the claim, from 1.
	Attempt int
	// State that was asked for.
	State State
	// Cached tells that the answer came from this process.
	Cached bool
	// Err tells what went wrong.
	Err error
}

func fire(hook func(Event), e Event) {
	if hook != nil {
		hook(e)
	}
}
