package dedup

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Observer is told what a [Deduper] does. Every hook may be nil. Hooks are called concurrently, on
// the goroutines that do the work, and must return quickly.
type Observer struct {
	// Claimed: a claim or a Seen was answered, by this process if Cached. Outcome, Cause, Age and
	// Attempt are set, and Err when Outcome is Unknown. For Seen, Acquired means not done.
	Claimed func(Event)
	// WouldSkip: in Observe mode, Outcome is what Enforce would answer. Fields as for Claimed.
	WouldSkip func(Event)
	// Ended: Complete, Fail, Release or Mark is on record. State is what was asked; Attempt is set.
	Ended func(Event)
	// Uncertain: a key was found uncertain, still is after Config.Resolve, or became so by the end
	// of an attempt here: then State is set. The other fields are those of Claimed; Err says why
	// the outcome is not known.
	Uncertain func(Event)
	// LeaseLost: a renewal or end found another owner, or the lease ended. It is called once for a
	// claim. Attempt and Err are set.
	LeaseLost func(Event)
	// StoreError: a store could not answer an item; another try may follow. Err says why. ID is
	// zero when the cache asked for Forgets.
	StoreError func(Event)
	// FailedOpen: the effect runs without a claim; see [FailOpen]. Fields as for Claimed.
	FailedOpen func(Event)
	// Filtered: a filter was asked about a claim; set this in layered.Config.Observer.
	// FilterAnswer, Reason, Saved and Outcome are set; a maybe that became Acquired was a false
	// positive.
	Filtered func(Event)
	// FilterState, also of layered.Config.Observer: the filter has rotated, grown, become
	// saturated, or lost or gained its coverage; or a minute has passed, while there are claims.
	// Fill, Estimated, Observed and Err are set, and Reason when the filter proves no key new.
	FilterState func(Event)
}

// Event is what an [Observer] is told. Only the fields that the comment of its hook names are set.
type Event struct {
	ID           driver.ID      // ID is the digest of the key.
	Outcome      driver.Outcome // Outcome of a claim.
	Cause        driver.Cause   // Cause of a Duplicate, InFlight or Mismatch, empty otherwise.
	Age          time.Duration  // Age of a duplicate since its key was done, by the store's clock.
	Attempt      int            // Attempt of the claim, from 1.
	State        driver.State   // State that was asked for.
	Cached       bool           // Cached says that the answer came from this process.
	FilterAnswer string         // FilterAnswer is "new" (proven), "maybe" or "unknown".
	Reason       string         // Reason why the filter answered "unknown", as it names it.
	Saved        int            // Saved is how many questions to a store the answer has saved.
	Fill         float64        // Fill of a filter: the share of its bits that are set.
	Estimated    float64        // Estimated share of false positives, by the filter's bits.
	Observed     float64        // Observed share of false positives; 1 would be all.
	Err          error          // Err says what went wrong.
}

func fire(hook func(Event), e Event) {
	if hook != nil {
		hook(e)
	}
}
