package franz

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// Assigned is a partition that this member was assigned, and is to own.
type Assigned struct {
	// Group of the consumer, and Topic of the partition. "Group/Topic" is the Source in the
	// origins of its messages' claims: neither may contain a slash.
	Group, Topic string
	// Partition is its number.
	Partition int32
	// Count of the topic's partitions: the brokers were asked after the assignment.
	Count int32
	// Generation of the group in which it was assigned. It stays the same while the partition
	// stays with this member.
	Generation int32
}

// Ownership is the exclusive right to a partition, as Config.Own acquires it. Its
// methods are called from several goroutines.
type Ownership interface {
	// Context ends when the partition is lost, and when it was released. What runs is cancelled
	// when it is lost, with a cause that wraps dedup.ErrLeaseLost and that of this context;
	// nothing more begins; and Config.Own is called again, after Release. Everything that was
	// not recorded by then is asked about anew.
	Context() context.Context
	// Misplaced is called before the store is asked about a message that does not lie where
	// Config.Partitioner says, and again before the end of such a message is recorded. When it
	// has returned nil nobody takes a message for new without looking into the other
	// partitions, for as long as a message may be known. It is called often, so it should cost
	// nothing when it was called lately; after an error it is called again, with a backoff.
	Misplaced(ctx context.Context) error
	// Release is called once, also for what was lost: after the last record of a partition has
	// been written, what was not started has been given back, and the last commit has been
	// tried. Handlers that have not returned by then go on, and their claims must stay alive.
	// An error is logged. It has a second.
	Release(ctx context.Context) error
}

// Murmur2 is the partition in which the Java client, librdkafka's murmur2_random, kgo and
// sarama's NewMurmur2Partitioner put a key, for Config.Partitioner. It is negative for a count
// below 1.
func Murmur2(key []byte, count int32) int32 { return partition.Murmur2(key, count) }

// FNV1a is the partition in which sarama's NewHashPartitioner, which is its default, and
// librdkafka's fnv1a_random put a key, for Config.Partitioner. (sarama's
// NewReferenceHashPartitioner is another one.) It is negative for a count below 1.
func FNV1a(key []byte, count int32) int32 { return partition.FNV1a(key, count) }

// owning sets what partitions need to be owned.
func (c *Config) owning(out *partition.Config) {
	if c.Own == nil {
		return
	}
	out.Partitioner = c.Partitioner
	out.Own = func(ctx context.Context, at partition.Assigned) (partition.Ownership, error) {
		o, err := c.Own(ctx, Assigned(at))
		if err != nil || o == nil {
			return nil, err
		}
		return o, nil
	}
}

// count asks the brokers for the number of a topic's partitions.
func (s *session) count(ctx context.Context, topic string) (int32, error) {
	request := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, name)
	answer, err := request.RequestWith(ctx, s.client)
	if err != nil {
		return 0, err
	}
	for _, found := range answer.Topics {
		if found.Topic == nil || *found.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
			return 0, fmt.Errorf("franz: topic %q: %w", topic, err)
		}
		return int32(len(found.Partitions)), nil
	}
	return 0, fmt.Errorf("franz: topic %q is not in the brokers' answer", topic)
}
