package driver

import (
	"context"
	"time"
)

// Store keeps claims and records. Package deduptest proves that an
// implementation keeps this contract.
//
// The batch is the primitive. Every method answers per item, in the order of its
// argument and in a slice of the same length: one bad item never fails its batch.
// Every item of one call has its own ID (a Deduper removes repetitions first).
// A method returns when ctx ends; items it could not learn carry Answer.Err.
// Sending an item again with the same token is harmless. Implementations are safe
// for concurrent use and measure every duration by the store's own clock. They leave the
// slices of their arguments alone once they have answered every item without an error.
//
// A store may do less or more, and says so by implementing [Limiter], [FinishClaimer],
// [ForgetCounter], [Waker] or [Recycler]. A wrapper has to forward the interfaces that its store
// has, or a Deduper cannot see them: deduptest.Wrapper fails a wrapper that drops one.
type Store interface {
	// Claim asks for the exclusive right to run the effect of each ID and sets
	// Answer.Outcome:
	//
	//   - absent: [Acquired], attempt 1, a fence larger than any before it, also
	//     across a forgotten or expired record.
	//   - released, or in progress with a lapsed lease: [Acquired], attempt and fence
	//     continued.
	//   - in progress under this very token: [Acquired] with Answer.Mine, nothing is
	//     changed (the lease is not extended).
	//   - in progress under a live lease: [InFlight] with Record.Remaining. A request with
	//     TakeOverOlderGeneration is answered [Acquired] instead, as after a release, when
	//     the claim is not Irreversible and its Origin is older. An older Origin has the same
	//     digest, not zero, the same Partition, and a Generation above zero and below that of
	//     the request. The older owner has lost the key from then on.
	//   - a request with OnlyNew that would otherwise be answered [Acquired], for a key with
	//     an attempt of 1 or more: [InFlight] with the Record as it is, except for a Remaining
	//     of zero or less. If the request would have got the key only by TakeUncertain:
	//     [Uncertain].
	//   - succeeded or failed: [Duplicate] with the Record.
	//   - uncertain, which a claim with Record.Irreversible becomes when its lease lapses:
	//     [Uncertain] with the Record. A request with TakeUncertain is answered
	//     [Acquired] instead, as after a release: to one caller at a time, attempt and
	//     fence continued, and with the Irreversible and the Steps that the key had.
	//   - any of these bound to another fingerprint: [Mismatch] with the Record.
	//   - unreachable, unreadable, full: [Unknown] with Answer.Err.
	Claim(ctx context.Context, reqs []ClaimRequest) []Answer

	// Renew makes the lease of each claim last Renewal.Lease from now, if the token still owns
	// the claim, and answers Held. It never creates a claim and never revives one: anything
	// else is answered with Held false and a nil Err, and neither Irreversible nor Steps is
	// written.
	//
	// A claim with Irreversible, declared by this Renewal or an earlier one, is remembered for at
	// least Renewal.Window from now, and never for less than it was already.
	Renew(ctx context.Context, renewals []Renewal) []Answer

	// Finish ends each attempt: Finish.State is StateSucceeded, StateFailed or
	// StateReleased.
	//
	// With the owner's token (lapsed or not, as long as nobody took over) it writes
	// and answers Held and Written. From anybody else it changes nothing and answers neither Held
	// nor Written, with the stored Record. There are two exceptions. The same Finish sent again
	// finds its own token's work and answers what the first send did. And a Finish with
	// EffectApplied, whose State must be StateSucceeded, turns absent, in progress, released and
	// uncertain into succeeded, and answers Written without Held. Such a Finish never touches
	// succeeded or failed. It also changes nothing if its fence is above zero but not above the
	// fence that a Forget left behind: the key keeps that fence as a floor while it is remembered.
	//
	// A claim with Irreversible is not released: it becomes StateUncertain, as the Record of
	// the Answer shows, and is remembered for Finish.Window at least. Only a Finish with
	// NotStarted releases it, and withdraws Irreversible. Steps outlive a release, and are dropped
	// when the key succeeds or fails.
	//
	// An owner's Finish with NotAttempted takes back the attempt that its claim has counted, so
	// that the next claim has the same number, also when the key ends as uncertain. If that claim
	// was the first, no attempt is left. The fence stays. Sent again, such a Finish takes nothing
	// away.
	Finish(ctx context.Context, ends []Finish) []Answer

	// Lookup reads, and changes nothing.
	Lookup(ctx context.Context, ids []ID) []Answer

	// Forget makes each key claimable again from attempt 1. It answers [ErrInFlight]
	// under a live lease. For hold it leaves the fence behind, so that an owner from
	// before the Forget writes nothing. Forgetting an absent key is not an error.
	Forget(ctx context.Context, ids []ID, hold time.Duration) []error
}

// ClaimRequest is one item of [Store.Claim].
type ClaimRequest struct {
	ID    ID            // ID of the key.
	Token Token         // Token of this attempt.
	Lease time.Duration // Lease is how long the claim lasts without renewal.
	// Hold is how much longer than its lease the claim is remembered, so that attempt
	// count and fence survive a crash.
	Hold time.Duration
	// Window is how long the end of the claim will be remembered; zero when it is not known yet. A
	// store that would refuse such an end must refuse the claim, with an [*InputError]: after
	// the effect it is too late.
	Window time.Duration
	// ResultLimit is how many bytes a result of the end may have; zero when there will be
	// neither a result nor a failure, or it is not known yet. Like Window, it lets the store refuse
	// the claim.
	ResultLimit int
	Origin      Origin      // Origin of the message; zero when unknown.
	Label       string      // Label kept in clear; at most 64 bytes, usually empty.
	Fingerprint Fingerprint // Fingerprint of the payload; zero compares with nothing.
	// LikelyDuplicate says that looking before claiming is probably cheaper.
	LikelyDuplicate bool
	TakeUncertain   bool // TakeUncertain also asks for an uncertain key, to find out about it.
	// TakeOverOlderGeneration and OnlyNew are those of the dedup.Request.
	TakeOverOlderGeneration bool
	OnlyNew                 bool // OnlyNew is that of the dedup.Request.
	// NoResult says that the end will have no result, and may have Finish.MayOverwrite.
	NoResult bool
}

// Renewal is one item of [Store.Renew].
type Renewal struct {
	ID    ID    // ID of the key.
	Token Token // Token of the attempt.
	// Fence of the attempt. A claim with another fence is not renewed; see [Finish].Fence.
	Fence uint64
	Lease time.Duration // Lease is how long the claim lasts from now.
	// Hold is how much longer than its lease the claim is remembered.
	Hold time.Duration
	// Window is how long a claim with Irreversible is remembered at least.
	Window time.Duration
	// Steps replaces the finished steps that the key keeps, at most 64 KiB; nil leaves them. Steps
	// only grow. So Steps that are shorter than the kept ones were sent earlier and have come late,
	// and the store ignores them.
	Steps []byte
	// Irreversible declares that the irreversible part may begin. A Renewal without it does not
	// withdraw it.
	Irreversible bool
}

// Finish is one item of [Store.Finish]. Its small fields are grouped, as in [ClaimRequest],
// [Record] and [Answer], because batches copy thousands of these structs.
type Finish struct {
	ID    ID    // ID of the key.
	Token Token // Token of the attempt that asks.
	// Fence of that attempt; zero when it never had a claim. A claim with another fence is not
	// held. A copy of the claim request may arrive late, after others have had the key. It gives
	// the same token another claim, of which the owner knows nothing.
	Fence uint64
	// Attempt count of that attempt, written when a Finish with EffectApplied finds no record.
	Attempt int
	Lease   time.Duration // Lease is the one with which the claim was won, or zero.
	// Hold is how long a released key keeps its attempt count and fence.
	Hold time.Duration
	// Window is how long a succeeded, failed or uncertain key is remembered.
	Window time.Duration
	// Until is when the attempt's claim ends, on this process's monotonic clock. A store may
	// find this very Finish on record, and no longer know whether the claim was held when it
	// was written. It then answers Held only before Until.
	Until time.Time
	// With and the write are done together or not at all: see dedup.Completion. It needs
	// StateSucceeded. A store that does not know the type of With must answer an [*InputError] and
	// write nothing.
	With any
	// Result to store with StateSucceeded, or the error text with StateFailed.
	Result      []byte
	Origin      Origin      // Origin of the attempt's message.
	Label       string      // Label kept in clear.
	Fingerprint Fingerprint // Fingerprint of the payload.
	State       State       // State to reach.
	NoResult    bool        // NoResult says that a result existed and is not kept.
	// MayOverwrite allows a store to write the end without a comparison, where that is cheaper.
	// Such an end has no result and was not sent before, and neither its attempt nor the claim
	// that it found is Irreversible. A store that does so must put back what the end must not
	// replace. It must also keep no result of any attempt after one with ClaimRequest.NoResult,
	// because a late copy of that attempt's end would replace it.
	MayOverwrite  bool
	EffectApplied bool // EffectApplied says that the effect has happened, whoever owns the key now.
	NotStarted    bool // NotStarted withdraws Irreversible with StateReleased.
	// Irreversible says that the attempt has declared its point of no return, or taken over a key
	// whose point of no return was declared. It is only a hint: the store knows it better.
	Irreversible bool
	// NotAttempted says that the attempt never began: it is not counted. It needs StateReleased and
	// excludes NotStarted, because an attempt that never began knows nothing of earlier ones. A
	// store answers anything else with an [*InputError].
	NotAttempted bool
}

// Answer is what a store says of one item.
type Answer struct {
	Outcome Outcome // Outcome of a Claim.
	// Mine says that a Claim found its own token: an earlier send was executed.
	Mine bool
	Held bool // Held says that the token of a Renew or Finish owned the key.
	// Written says that a Finish is on record, by this send or an earlier one.
	Written bool
	// Record as it is stored after the call; for an Acquired claim its Attempt and
	// Fence are those of the new claim.
	Record Record
	// Err says why the item has no answer. Outcome is then Unknown, and Held and Written are
	// false, but the store may have executed the item. The store has not executed it if an error in
	// the tree has a method NotSent() bool that returns true: such a claim need not be given back.
	// If one has a method Denied() bool that returns true, the end of a claim is not sent again:
	// the store lacks a permission, which somebody has to grant first.
	Err error
}
