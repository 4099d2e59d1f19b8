package dedup

import "time"

// Result is what [DoResult] returns.
type Result[T any] struct {
	// Value of the effect: this call's own, or the stored one for a Duplicate.
	Value T
	// Outcome: Acquired when this call ran the effect, Duplicate when it was replayed.
	Outcome Outcome
	Attempt int    // Attempt that ran the effect, from 1.
	Record  Record // Record that was found, for anything but Acquired.
	Cause   Cause  // Cause of a Duplicate.
}

// Cause is why a duplicate arrived, as far as fingerprint, origin and age show. It is the
// empty string for a message that is not a duplicate.
//
// A Cause is "other_source" where the record was made by a message of another source, such as
// another topic or another consumer group. Where nobody copies messages from one to the other,
// two different messages share a key, and the effect of the second one is skipped.
type Cause string

const (
	// BrokerRedelivery: the same position was delivered again to the same generation.
	BrokerRedelivery Cause = "broker_redelivery"
	// RebalanceReplay: the same position was delivered again to another generation.
	RebalanceReplay Cause = "rebalance_replay"
	// otherSource: see Cause. Packages kafkaadapter and franz export it, because only their
	// duplicates have it.
	otherSource Cause = "other_source"
	// ProducerRetry: the same key arrived at another position of the same source, or one of
	// the two has no source.
	ProducerRetry Cause = "producer_retry"
	// KeyReuse: the same key arrived with another fingerprint.
	KeyReuse Cause = "key_reuse"
	// Late: it arrived when more than half of Config.Window had passed since the key was done.
	// The window may be too short for what is redelivered.
	Late Cause = "late"
)

// causeOf explains the duplicate that arrived from o and found rec. Another source is
// reported first, because the effect may be missing. An age beyond lateAfter comes next,
// whatever the position: it is the warning that the window is too short.
func causeOf(outcome Outcome, o *Origin, rec *Record, lateAfter time.Duration) Cause {
	switch {
	case outcome == Mismatch:
		return KeyReuse
	case outcome != Duplicate && outcome != InFlight:
		return ""
	case o.Digest() != 0 && rec.Origin.Digest() != 0 && o.Digest() != rec.Origin.Digest():
		return otherSource
	case rec.Age > lateAfter:
		return Late
	case samePosition(o, &rec.Origin) && o.Generation != rec.Origin.Generation:
		return RebalanceReplay
	case samePosition(o, &rec.Origin):
		return BrokerRedelivery
	default:
		return ProducerRetry
	}
}
