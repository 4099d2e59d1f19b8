package dedup

import "time"

// Origin says where a message came from, so that a later duplicate can be explained.
// The zero Origin means "unknown".
type Origin struct {
	// Source names the stream: for Kafka the topic, and where a request wants
	// TakeOverOlderGeneration the consumer group with it, because two groups count their
	// generations apart. Stores keep its Digest.
	Source string
	// SourceDigest is what a store returns instead of Source; see Digest.
	SourceDigest uint64
	// Offset within the partition.
	Offset int64
	// Partition of the stream.
	Partition int32
	// Generation of the consumer group when the message was claimed; zero when unknown.
	Generation int32
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

// Digest returns the 64-bit digest of the Source, the form in which stores keep it.
// It is SourceDigest for an empty Source, so zero for an unknown one.
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

// samePosition reports whether both origins are known and are one position.
func (o *Origin) samePosition(other *Origin) bool {
	return o.Digest() != 0 && o.Digest() == other.Digest() &&
		o.Partition == other.Partition && o.Offset == other.Offset
}

// outranks reports whether o is of the partition that other is of, in the same stream, and
// of a newer generation of its consumers. An unknown origin outranks nothing, and nothing
// outranks it.
func (o *Origin) outranks(other *Origin) bool {
	return o.Digest() != 0 && o.Digest() == other.Digest() && o.Partition == other.Partition &&
		other.Generation > 0 && other.Generation < o.Generation
}

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
	case o.samePosition(&rec.Origin) && o.Generation != rec.Origin.Generation:
		return RebalanceReplay
	case o.samePosition(&rec.Origin):
		return BrokerRedelivery
	default:
		return ProducerRetry
	}
}
