package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Limits of the request for a message: how much of a partition is sent at once, beyond one batch,
// and how long a broker may wait for it. It need not wait, because the message is there.
const (
	lagBytes = 64 << 10
	lagWait  = 500 // ms
)

// The ends of a partition, as ListOffsets encodes them.
const newest, oldest = -1, -2

var errNotAnswered = errors.New("it is not in the brokers' answer")

// Lags returns for each topic how old the oldest message is that a group has not read. That is the
// age of the next message of the partition that is furthest behind, and 0 for a topic that is read
// to its end. A group that is further behind than the window of its Deduper runs a duplicate again,
// because the record of the first message is gone by then. So a lag must stay below the window, and
// so must [Retentions]; telemetry.AuditConfig.Lags asks for it.
//
// A partition in which the group has committed nothing counts from its oldest message, where it
// begins with AtStart. So does a partition whose messages were deleted unread. Lags skips gaps of
// compaction and markers of transactions; messages of a transaction that was aborted, or still
// runs, count. A message's age is the time since its timestamp (CreateTime is by the producer's
// clock, LogAppendTime by the broker's) by the clock of this process; a message from the future
// counts as new. A share group commits no offsets, so all of its messages count as unread.
//
// Lags costs four round trips, and one more to the leader of each partition that is not read to its
// end. Each leader sends a batch or 64 KiB, so ask only every few minutes. The group needs
// Describe, and the topics Describe and Read. Requests are tried again until ctx ends. The client
// may be in use elsewhere, and its own consuming does not change.
//
// The error is an [*dedup.InputError] for a nil ctx or client, an empty group or no topics, or the
// reason why the brokers did not answer. A message without a time is an error, too.
func Lags(ctx context.Context, client *kgo.Client, group string,
	topics ...string) (map[string]time.Duration, error) {
	switch {
	case ctx == nil:
		return nil, &dedup.InputError{Field: "Context", Reason: "is nil"}
	case client == nil:
		return nil, &dedup.InputError{Field: "Client", Reason: "is nil"}
	case group == "":
		return nil, &dedup.InputError{Field: "Group", Reason: "is empty"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	q := question{client: client, ids: map[string][16]byte{},
		leaders: map[kafkadriver.TopicPartition]int32{}}
	unread, err := q.unread(ctx, group, topics)
	if err != nil {
		return nil, fmt.Errorf("kafkafranz: %w", err)
	}
	ages, err := kafkadriver.Ages(time.Now(), topics, unread,
		func(at kafkadriver.TopicPartition, offset int64) (kafkadriver.Stretch, error) {
			return q.readFrom(ctx, at, offset)
		})
	if err != nil {
		return nil, fmt.Errorf("kafkafranz: %w", err)
	}
	return ages, nil
}

// question has what Lags has learned about the topics.
type question struct {
	client  *kgo.Client
	ids     map[string][16]byte
	leaders map[kafkadriver.TopicPartition]int32
}

// unread returns what the group has not read of the topics' partitions.
func (q *question) unread(ctx context.Context, group string,
	topics []string) (map[kafkadriver.TopicPartition]kafkadriver.Span, error) {
	if err := q.describe(ctx, topics); err != nil {
		return nil, err
	}
	committed, err1 := q.committed(ctx, group)
	first, err2 := q.offsets(ctx, oldest)
	end, err3 := q.offsets(ctx, newest)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	spans := make(map[kafkadriver.TopicPartition]kafkadriver.Span, len(q.leaders))
	for at := range q.leaders {
		next, ok := committed[at]
		if !ok {
			next = -1
		}
		spans[at] = kafkadriver.SpanOf(next, first[at], end[at])
	}
	return spans, nil
}

// describe asks for the topics' partitions and their leaders.
func (q *question) describe(ctx context.Context, topics []string) error {
	answer, err := metadataOf(topics).RequestWith(ctx, q.client)
	if err != nil {
		return fmt.Errorf("the topics' partitions cannot be asked for: %w", err)
	}
	for _, t := range answer.Topics {
		if t.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("topic %q: %w", *t.Topic, err)
		}
		q.ids[*t.Topic] = t.TopicID
		for _, p := range t.Partitions {
			at := kafkadriver.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			q.leaders[at] = p.Leader
		}
	}
	for _, topic := range topics {
		if _, ok := q.ids[topic]; !ok {
			return fmt.Errorf("topic %q: %w", topic, errNotAnswered)
		}
	}
	return nil
}

// committed returns where the group continues, for partitions in which it has committed.
func (q *question) committed(ctx context.Context,
	group string) (map[kafkadriver.TopicPartition]int64, error) {
	ask := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group // no topics: all of them
	ask.Groups = append(ask.Groups, g)
	answer, err := ask.RequestWith(ctx, q.client)
	if err != nil {
		return nil, fmt.Errorf("the offsets of group %q cannot be asked for: %w", group, err)
	}
	all := make(map[kafkadriver.TopicPartition]int64)
	for _, g := range answer.Groups {
		// it has never run
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil &&
			!errors.Is(err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("the offsets of group %q cannot be asked for: %w", group, err)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("the offset of group %q in %s/%d: %w", group, t.Topic,
						p.Partition, err)
				}
				all[kafkadriver.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
			}
		}
	}
	return all, nil
}

// offsets returns the offsets of one end of all partitions.
func (q *question) offsets(ctx context.Context,
	end int64) (map[kafkadriver.TopicPartition]int64, error) {
	ask := kmsg.NewPtrListOffsetsRequest()
	for topic := range q.ids {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for at := range q.leaders {
			if at.Topic == topic {
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Partition, p.Timestamp = at.Partition, end
				t.Partitions = append(t.Partitions, p)
			}
		}
		ask.Topics = append(ask.Topics, t)
	}
	answer, err := ask.RequestWith(ctx, q.client)
	if err != nil {
		return nil, fmt.Errorf("the partitions' offsets cannot be asked for: %w", err)
	}
	all := make(map[kafkadriver.TopicPartition]int64, len(q.leaders))
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("the offsets of %s/%d cannot be asked for: %w", t.Topic,
					p.Partition, err)
			}
			all[kafkadriver.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
		}
	}
	for at := range q.leaders {
		if _, ok := all[at]; !ok {
			return nil, fmt.Errorf("the offsets of %s/%d: %w", at.Topic, at.Partition,
				errNotAnswered)
		}
	}
	return all, nil
}

// readFrom asks a partition's leader for the messages from offset on.
func (q *question) readFrom(ctx context.Context, at kafkadriver.TopicPartition,
	offset int64) (kafkadriver.Stretch, error) {
	ask := kmsg.NewPtrFetchRequest()
	ask.MaxWaitMillis, ask.MinBytes, ask.MaxBytes = lagWait, 1, lagBytes
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	t.Topic, t.TopicID = at.Topic, q.ids[at.Topic] // the version decides which is sent
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = at.Partition, offset, lagBytes
	t.Partitions = append(t.Partitions, p)
	ask.Topics = append(ask.Topics, t)
	got, err := q.client.Broker(int(q.leaders[at])).RetriableRequest(ctx, ask)
	if err != nil {
		return kafkadriver.Stretch{}, err
	}
	answer, ok := got.(*kmsg.FetchResponse)
	if !ok || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		if ok && answer.ErrorCode != 0 {
			return kafkadriver.Stretch{}, kerr.ErrorForCode(answer.ErrorCode)
		}
		return kafkadriver.Stretch{}, errNotAnswered
	}
	sent, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: offset,
		Topic: at.Topic, Partition: at.Partition},
		&answer.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	switch {
	case len(sent.Records) > 0:
		return kafkadriver.Stretch{Found: true, Sent: sent.Records[0].Timestamp}, nil
	case sent.Err != nil:
		return kafkadriver.Stretch{}, sent.Err
	}
	return kafkadriver.Stretch{After: after}, nil
}

// Retentions returns how long topics keep messages; negative: without limit. For that long a
// replay, or a group that is behind, may bring a message back, and the window of a Deduper must be
// longer. A topic that is only compacted keeps messages without limit. The result is a rule of
// thumb: Kafka drops whole segments, so a message may live up to segment.ms longer. It costs one
// round trip, and its retries, until ctx ends.
//
// The error is an [*dedup.InputError] for a nil ctx or client or for no topics, or the reason why
// the brokers did not answer.
func Retentions(ctx context.Context, client *kgo.Client,
	topics ...string) (map[string]time.Duration, error) {
	switch {
	case ctx == nil:
		return nil, &dedup.InputError{Field: "Context", Reason: "is nil"}
	case client == nil:
		return nil, &dedup.InputError{Field: "Client", Reason: "is nil"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	ask := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic,
			[]string{"retention.ms", "cleanup.policy"}
		ask.Resources = append(ask.Resources, r)
	}
	answer, err := ask.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("kafkafranz: the topics' retention cannot be asked for: %w", err)
	}
	found := make(map[string]time.Duration, len(topics))
	for _, r := range answer.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, fmt.Errorf("kafkafranz: the retention of topic %q cannot be asked for: %w",
				r.ResourceName, err)
		}
		values := map[string]string{}
		for _, c := range r.Configs {
			if c.Value != nil {
				values[c.Name] = *c.Value
			}
		}
		if found[r.ResourceName], err = kafkadriver.Retention(values); err != nil {
			return nil, fmt.Errorf("kafkafranz: topic %q: %w", r.ResourceName, err)
		}
	}
	for _, topic := range topics {
		if _, ok := found[topic]; !ok {
			return nil, fmt.Errorf("kafkafranz: the retention of topic %q was not answered", topic)
		}
	}
	return found, nil
}
