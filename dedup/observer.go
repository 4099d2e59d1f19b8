package dedup

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Observer is told what a [Deduper] does. Every hook may be nil, is called on the goroutine that
// did the work, concurrently, and must return quickly.
type Observer struct {
	// Claimed: a claim, or a Seen, was answered. Outcome, Cause, Age and Attempt are
	// set, and Err when the Outcome is Unknown. With Cached, the store was not asked for it.
	// A key that Seen has not seen has Outcome Acquired.
	Claimed func(Event)
	// WouldSkip: in Observe mode, Outcome is what Enforce would have answered. Fields as for
	// Claimed.
	WouldSkip func(Event)
	// Ended: Complete, Fail, Release or Mark is on record. State is what was asked; Attempt is
	// set.
	Ended func(Event)
	// Uncertain: a key was found uncertain, is so after Config.Resolve, or has just become so
	// by the end of an attempt here; then State is set. Fields as for Claimed; Err says why it
	// could not be found out.
	Uncertain func(Event)
	// LeaseLost: a renewal or an end found another owner, or the lease ran out. Attempt and
	// Err are set.
	LeaseLost func(Event)
	// StoreError: a store could not answer an item, or not yet. Err says why. ID is zero when
	// the cache asked for Forgets.
	StoreError func(Event)
	// FailedOpen: the effect runs without a claim, as the mode [FailOpen] allows. Fields as
	// for Claimed.
	FailedOpen func(Event)
	// Filtered: a claim was answered by two stores with a filter: see package layered.
	// FilterAnswer, Reason, Saved and Outcome are set; a maybe that became Acquired was a false
	// positive.
	Filtered func(Event)
	// FilterState: the filter has rotated, grown, become saturated, or lost or gained its
	// coverage. It is also called once a minute while there are claims. Fill, Estimated and
	// Observed are set, and Err; Reason is set when the filter proves no key new.
	FilterState func(Event)
}

// Event is what an [Observer] is told. Only the fields its hook names are set.
type Event struct {
	ID      driver.ID      // ID is the digest of the key.
	Outcome driver.Outcome // Outcome of a claim.
	Cause   Cause          // Cause of a duplicate, empty otherwise.
	// Age of a duplicate: the time since its key was done, by the store's clock.
	Age     time.Duration
	Attempt int          // Attempt of the claim, from 1.
	State   driver.State // State that was asked for.
	Cached  bool         // Cached says that the answer came from this process.
	// FilterAnswer is "new" (proven), "maybe" or "unknown".
	FilterAnswer string
	// Reason why the filter answered "unknown", as it names it; empty otherwise.
	Reason string
	Saved  int     // Saved is how many questions to a store the answer has made needless.
	Fill   float64 // Fill of a filter: the share of its bits that are set.
	// Estimated rate of a filter's false positives, by its bits, as a share of 1.
	Estimated float64
	Observed  float64 // Observed rate of a filter's false positives, as a share of 1.
	Err       error   // Err says what went wrong.
}

func fire(hook func(Event), e Event) {
	if hook != nil {
		hook(e)
	}
}
