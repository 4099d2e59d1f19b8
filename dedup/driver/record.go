package driver

import "time"

// Outcome is what a claim attempt found. Only [Duplicate], and [Acquired] once Complete or Fail
// has returned nil, may be acknowledged to whoever delivered the message. For an error,
// dedup.CanAck says the same.
type Outcome uint8

const (
	// Unknown means that this call could not learn the state of the key: the store
	// was unreachable, answered too late, or holds a value this version cannot
	// read. Never acknowledge on it; ask again. It is the zero value on purpose.
	Unknown Outcome = iota
	// Acquired means that the caller now holds the claim and must run the effect.
	// A claim that finds its own token, after a lost reply, is Acquired too.
	Acquired
	// Duplicate means that the key is done: it succeeded, or it failed for good.
	Duplicate
	// InFlight means that another owner holds the claim under a live lease.
	InFlight
	// Mismatch means that the key is bound to another payload fingerprint.
	Mismatch
	// Uncertain means that an earlier owner died after it had declared that the
	// irreversible part might have begun; somebody has to find out.
	Uncertain
)

// String returns the lower-case name used in logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Acquired:
		return "acquired"
	case Duplicate:
		return "duplicate"
	case InFlight:
		return "in_flight"
	case Mismatch:
		return "mismatch"
	case Uncertain:
		return "uncertain"
	default:
		return "unknown"
	}
}

// State is the state of a key in its store.
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
	// StateSucceeded means that the effect has happened. It is never overwritten.
	StateSucceeded
	// StateFailed means that the effect failed for good. It is never overwritten.
	StateFailed
	// StateReleased means that an attempt ended without an effect. Attempt count and
	// fence are kept for the hold time, so that the next claim continues them.
	StateReleased
	// StateUncertain means that an attempt ended when the effect might have begun: its
	// owner died, or gave up, after dedup.MarkIrreversible.
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

// Record is what a store knows of one key. The zero Record is an absent key.
//
// It carries durations (Age and Remaining), not instants: the store's own clock measures them, so
// that no caller ever compares two machines' clocks.
type Record struct {
	State State // State of the key.
	// NoResult says that a result existed and was not kept (too large, or not
	// encodable), as opposed to an effect that had none.
	NoResult bool
	// Irreversible says that the irreversible part may have begun, in this attempt or in an
	// earlier one that nobody has found out about. Only an unfinished key has it.
	Irreversible bool
	// Fingerprint of the payload the key is bound to; zero when none was given.
	Fingerprint Fingerprint
	// Attempt counts claims, from 1. A claim counts when it is made, so a handler that kills its
	// process counts, too.
	Attempt int
	Fence   uint64 // Fence of the newest claim. It only grows per key.
	// Result holds what [StateSucceeded] stored, or the text of the error that
	// [StateFailed] stored. Nil when nothing was stored.
	Result []byte
	// Origin of the message that made the newest claim; zero when none was given.
	Origin Origin
	// Label is the clear-text label; empty unless the deployment keeps labels.
	Label string
	// Age is the time since the key became succeeded or failed; zero otherwise.
	Age time.Duration
	// Steps are the finished steps that the key keeps, as package dedup encodes them; see
	// dedup.Step. Only an unfinished key has them.
	Steps []byte
	// Remaining is how much longer the lease lasts (StateInProgress; negative or
	// zero means lapsed), or else how much longer the store remembers the record.
	Remaining time.Duration
}

// Origin says where a message came from, so that a later duplicate can be explained.
// The zero Origin means "unknown".
type Origin struct {
	// Source names the stream: for Kafka the topic. For TakeOverOlderGeneration it must also name
	// the consumer group, because two groups count their generations apart. Stores keep its Digest.
	Source string
	// SourceDigest is what a store returns instead of Source; see Digest.
	SourceDigest uint64
	Offset       int64 // Offset within the partition.
	Partition    int32 // Partition of the stream.
	// Generation of the consumer group when the message was claimed; zero when unknown.
	Generation int32
}

// Resolution answers what became of an uncertain key. The functions Happened, FailedForGood and
// DidNotHappen of package dedup make one; the zero Resolution means "still unknown".
type Resolution struct {
	// State that the key reaches: StateSucceeded, StateFailed, StateReleased when the effect has
	// not happened and may run, or StateAbsent when it is still unknown.
	State State
	// Result of the effect, or the text of its failure.
	Result []byte
}

// Cause is why a duplicate arrived, as far as fingerprint, origin and age show. It is the
// empty string for a message that is not a duplicate.
type Cause string

const (
	// BrokerRedelivery: the same position was delivered again to the same generation.
	BrokerRedelivery Cause = "broker_redelivery"
	// RebalanceReplay: the same position was delivered again to another generation.
	RebalanceReplay Cause = "rebalance_replay"
	// OtherSource: the record was made by a message of another source, such as another topic or
	// another consumer group. Where nobody copies messages from one to the other, two different
	// messages share a key, and the effect of the second one is skipped.
	OtherSource Cause = "other_source"
	// ProducerRetry: the same key arrived at another position of the same source, or one of
	// the two has no source.
	ProducerRetry Cause = "producer_retry"
	// KeyReuse: the same key arrived with another fingerprint.
	KeyReuse Cause = "key_reuse"
	// Late: it arrived when more than half of the window had passed since the key was done.
	// The window may be too short for what is redelivered.
	Late Cause = "late"
)

// Digest returns the 64-bit digest of the Source, the form in which stores keep it.
// For an empty Source it returns SourceDigest, which is zero if the source is unknown.
func (o Origin) Digest() uint64 {
	if o.Source == "" {
		return o.SourceDigest
	}
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a, 64 bit
	h := uint64(offset)
	for i := range len(o.Source) {
		h = (h ^ uint64(o.Source[i])) * prime
	}
	return max(h, 1)
}
