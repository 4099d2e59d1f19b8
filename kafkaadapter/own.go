package kafkaadapter

import "context"

// Assigned is a partition that this member was assigned, and is to own.
type Assigned struct {
	// Group is the consumer's, and Topic the partition's. "Group/Topic" is the Source in the
	// origins of its messages' claims: neither may contain a slash.
	Group, Topic string
	// Partition is its number.
	Partition int32
	// Count is the number of the topic's partitions, from an answer of the brokers after the
	// assignment.
	Count int32
	// Generation is that of the group in which the partition was assigned. It stays the same while
	// the partition stays with this member.
	Generation int32
}

// Ownership is the exclusive right to a partition, as Owning.Acquire returns it. Its
// methods are called from several goroutines.
type Ownership interface {
	// Context ends when the partition is lost, and when it was released. When it is lost, handlers
	// are canceled, with a cause that wraps [dedup.ErrLeaseLost] and the cause of this context;
	// nothing more begins; and Owning.Acquire is called again, after Release. The store is asked
	// anew about everything that was not recorded by then.
	Context() context.Context
	// Misplaced is called before the store is asked about a message that does not lie where
	// Owning.Partitioner says, and again before the end of such a message is recorded. After it has
	// returned nil, nobody takes a message for new without looking into the other partitions, for
	// as long as a record of the message may exist. It is called often, so it should cost nothing
	// when it was called recently. After an error it is called again, with a backoff.
	Misplaced(ctx context.Context) error
	// Release is called once, also for a partition that was lost. By then the last record of the
	// partition has been written, messages that were not started have been given back, and the last
	// commit has been tried. Handlers that have not returned by then go on, and their claims must
	// stay alive. An error is logged. Its context ends after a second.
	Release(ctx context.Context) error
}

// Murmur2 returns the partition in which the Java client, librdkafka's murmur2_random, kgo and
// sarama's NewMurmur2Partitioner put a key, for Owning.Partitioner. It is negative for a count
// below 1.
//
// The hash is Austin Appleby's MurmurHash2 with the seed that Kafka gives it, see
// org.apache.kafka.common.utils.Utils.murmur2.
func Murmur2(key []byte, count int32) int32 {
	if count < 1 {
		return -1
	}
	return int32(murmur2(key)&0x7fffffff) % count
}

func murmur2(b []byte) uint32 {
	const seed, m uint32 = 0x9747b28c, 0x5bd1e995
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	if len(b) > 0 {
		var k uint32
		for i, v := range b {
			k |= uint32(v) << (8 * i)
		}
		h = (h ^ k) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// FNV1a returns the partition in which sarama's NewHashPartitioner, which is its default, and
// librdkafka's fnv1a_random put a key, for Owning.Partitioner. (sarama's
// NewReferenceHashPartitioner is another one.) It is negative for a count below 1.
func FNV1a(key []byte, count int32) int32 {
	if count < 1 {
		return -1
	}
	const offset, prime uint32 = 2166136261, 16777619
	h := offset
	for _, b := range key {
		h = (h ^ uint32(b)) * prime
	}
	at := int32(h) % count
	return max(at, -at) // below count: there is no overflow
}
