package dedup

import "time"

// State is where a key stands in its store.
//
//	absent -> in progress -> succeeded | failed      (terminal for the window)
//	          in progress -> released                (retryable at once)
//	          in progress, lease lapsed -> taken over
//	          in progress with danger, lapsed or released -> uncertain
//	          uncertain -> in progress, to find out  (nobody else gets it)
type State uint8

const (
	// StateAbsent means that the store knows nothing of the key.
	StateAbsent State = iota
	// StateInProgress means that an owner holds a claim; its lease may have lapsed.
	StateInProgress
	// StateSucceeded means that the effect landed. It is never overwritten.
	StateSucceeded
	// StateFailed means that the effect failed for good. It is never overwritten.
	StateFailed
	// StateReleased means that an attempt ended without an effect. Attempt count and
	// fence are kept for the hold time, so that the next claim continues them.
	StateReleased
	// StateUncertain means that an attempt ended when the effect might have begun: its
	// owner died, or gave up, after [Danger].
	StateUncertain
)

// String returns the lower-case name used in logs, metrics and the command line.
func (s State) String() string {
	switch s {
	case StateInProgress:
		return "in_progress"
	case StateSucceeded:
		return "succeeded"
	case StateFailed:
		return "failed"
	case StateReleased:
		return "released"
	case StateUncertain:
		return "uncertain"
	default:
		return "absent"
	}
}

// terminal reports whether the state is an end that is replayed.
func (s State) terminal() bool { return s == StateSucceeded || s == StateFailed }

// Record is what a store knows of one key. The zero Record is an absent key.
//
// It carries durations, not instants: both are measured by the store's own clock,
// so that no caller ever compares two machines' clocks.
type Record struct {
	// State of the key.
	State State
	// NoResult says that a result existed and was not kept (too large, or not
	// encodable), as opposed to an effect that had none.
	NoResult bool
	// Danger says that the irreversible part may have begun, in this attempt or in an
	// earlier one that nobody has found out about. Only an unfinished key has it.
	Danger bool
	// Fingerprint of the payload the key is bound to; zero when none was given.
	Fingerprint Fingerprint
	// Attempt counts claims, from 1. It is counted when claiming, so a handler that
	// kills its process still advances it.
	Attempt int
	// Fence of the newest claim. It only grows per key.
	Fence uint64
	// Result holds what [StateSucceeded] stored, or the text of the error that
	// [StateFailed] stored. Nil when nothing was stored.
	Result []byte
	// Origin of the message that made the newest claim; zero when none was given.
	Origin Origin
	// Label is the clear-text label; empty unless the deployment keeps labels.
	Label string
	// Age is the time since the key became succeeded or failed; zero otherwise.
	Age time.Duration
	// Steps is what the key keeps of finished steps, in the form of this package; see
	// [Step]. Only an unfinished key has it.
	Steps []byte
	// Remaining is how much longer the lease lasts (StateInProgress; negative or
	// zero means lapsed), or else how much longer the store remembers the record.
	Remaining time.Duration
}
