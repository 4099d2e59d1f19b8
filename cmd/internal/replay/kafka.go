package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

const (
	// maxMessage is so large that only the brokers limit the size of a message, because a message
	// that came from a topic should fit into that topic again.
	maxMessage = 64 << 20
	// tries is how often the run sends a message, or commits an offset, before it gives up.
	tries     = 5
	retryTime = 200 * time.Millisecond
)

// homePartitioner sends a message to the partition that it came from, because the other messages of
// its key are there, whatever hash chose it. If there is no such partition, the key chooses one.
type homePartitioner struct{ kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (p homePartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return homeTopic{p.Partitioner.ForTopic(topic)}
}

type homeTopic struct{ kgo.TopicPartitioner }

// RequiresConsistency implements kgo.TopicPartitioner: the client waits for a partition that is
// down.
func (homeTopic) RequiresConsistency(*kgo.Record) bool { return true }

// Partition implements kgo.TopicPartitioner.
func (t homeTopic) Partition(r *kgo.Record, n int) int {
	home := kafkafranz.Message(r).Header(kafkaadapter.HeaderPartition)
	if p, err := strconv.ParseUint(home, 10, 31); err == nil && int(p) < n {
		return int(p)
	}
	return t.TopicPartitioner.Partition(r, n)
}

// kafka is the connection to Kafka.
type kafka struct {
	client   *kgo.Client
	admin    *kadm.Client
	producer kafkaadapter.Producer // nil in a dry run
}

// openKafka connects.
func openKafka(ctx context.Context, o *Options) (*kafka, error) {
	client, err := o.Kafka.Open(ctx, "onceward-replay",
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.ProducerBatchMaxBytes(maxMessage),
		kgo.RecordPartitioner(homePartitioner{kgo.StickyKeyPartitioner(nil)}),
		// A second copy of a message is a duplicate anyway. Because the writes are not idempotent,
		// the command does not need the right to make idempotent writes.
		kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(tries), kgo.RecordDeliveryTimeout(messageTime/2),
		kgo.MetadataMinAge(retryTime), // each try waits for new metadata
		kgo.RequestRetries(tries), kgo.RetryBackoffFn(func(int) time.Duration { return retryTime }),
	)
	if err != nil {
		return nil, err
	}
	k := &kafka{client: client, admin: kadm.NewClient(client)}
	if !o.DryRun {
		if k.producer, err = kafkafranz.Producer(client); err != nil {
			client.Close()
			return nil, err
		}
	}
	return k, nil
}

// hasTopic reports whether a topic exists, so that a message can be sent there.
func (k *kafka) hasTopic(ctx context.Context, topic string) (bool, error) {
	topics, err := k.admin.ListTopics(ctx, topic)
	if err != nil {
		return false, err
	}
	err = topics[topic].Err
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.InvalidTopicException) {
		return false, nil
	}
	return err == nil, err
}

// part is a partition of the dead-letter topic.
type part struct {
	number   int32
	position int64 // the next offset to look at
	end      int64 // where the partition ended when the command began
	done     finished
}

// parts finds where each partition begins and ends.
func (k *kafka) parts(ctx context.Context, topic, group string) ([]*part, error) {
	oldest, err := k.admin.ListStartOffsets(ctx, topic)
	newest, failed := k.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, failed, oldest.Error(), newest.Error()); err != nil {
		return nil, fmt.Errorf("--topic %q: %w", topic, err)
	}
	committed, err := k.committed(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("--group %q: %w", group, err)
	}
	var all []*part
	for _, n := range slices.Sorted(maps.Keys(newest[topic])) {
		p := &part{number: n, end: newest[topic][n].Offset}
		if at, ok := committed.Lookup(topic, n); ok && at.At >= 0 {
			if p.done, err = parseFinished(at.At, at.Metadata); err != nil {
				return nil, fmt.Errorf("%s/%d: %w", topic, n, err)
			}
		}
		if p.done.next > p.end {
			return nil, fmt.Errorf(
				"%s/%d: offset %d is committed, and the partition ends at %d: it is another topic by now; choose another --group", topic, n, p.done.next, p.end)
		}
		// skip what retention has deleted
		p.done = p.done.with(p.done.next, oldest[topic][n].Offset)
		p.position = p.done.next
		all = append(all, p)
	}
	return all, nil
}

// committed returns the offsets of the group. It refuses a group with members, because the offsets
// belong to these members.
func (k *kafka) committed(ctx context.Context, group string) (kadm.OffsetResponses, error) {
	described, err := k.admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	if len(described[group].Members) > 0 {
		return nil, errors.New("has members: it must be this command's own")
	}
	all, err := k.admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) { // the group has never committed
		return nil, nil
	}
	return all, errors.Join(err, all.Error())
}

// commit returns when the broker has stored which offsets of a partition are done. Brokers refuse
// the commit if the group has members.
func (k *kafka) commit(ctx context.Context, topic, group string, number int32,
	done finished) error {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: number, At: done.next, LeaderEpoch: -1,
		Metadata: done.text()})
	if err := k.admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return fmt.Errorf("the offset cannot be committed: %w", err)
	}
	return nil
}
