package kafkasarama

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Limits of the request for a message: how much of a partition is sent at once, beyond one batch,
// and how long a broker may wait for it. It need not wait, because the message is there.
const (
	lagBytes = 64 << 10
	lagWait  = 500 // ms
)

var errOldFormat = errors.New("it is of the format before Kafka 0.11")

// Lags returns for each topic how old the oldest message is that a group has not read. That is the
// age of the next message of the partition that is furthest behind, and 0 for a topic that is read
// to its end. A group that is further behind than the window of its Deduper runs a duplicate again,
// because the record of the first message is gone by then. So a lag must stay below the window, and
// so must [Retentions]; telemetry.AuditConfig.Lags asks for it.
//
// A partition in which the group has committed nothing counts from its oldest message, where it
// begins with OffsetOldest. So does a partition whose messages were deleted unread. Lags skips gaps
// of compaction and markers of transactions; messages of a transaction that was aborted, or still
// runs, count. A message's age is the time since its timestamp (CreateTime is by the producer's
// clock, LogAppendTime by the broker's) by the clock of this process; a message from the future
// counts as new.
//
// Lags costs four round trips, and one more to the leader of each partition that is not read to its
// end. Each leader sends a batch or 64 KiB, so ask only every few minutes. When a partition has
// another leader than the client knows, Lags refreshes the client and asks for everything again;
// Config.Metadata.Retry limits how often, and sets the pause. The group needs Describe, and the
// topics Describe and Read. sarama obeys no context: it gives up a broker that does not answer
// after Net.ReadTimeout and the retries of Config.Admin. The client stays open, and may be in use
// elsewhere.
//
// The error is an [*dedup.InputError] for a nil client, an empty group or no topics, or the reason
// why the brokers did not answer. A message without a time, or of the format before Kafka 0.11, is
// an error, too.
func Lags(client sarama.Client, group string, topics ...string) (map[string]time.Duration, error) {
	switch {
	case client == nil:
		return nil, &dedup.InputError{Field: "Client", Reason: "is nil"}
	case group == "":
		return nil, &dedup.InputError{Field: "Group", Reason: "is empty"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	// never closed: that would close the client
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the lag of group %q cannot be asked for: %w",
			group, err)
	}
	ages, err := lags(client, admin, group, topics)
	for again := client.Config().Metadata.Retry; again.Max > 0 && moved(err); again.Max-- {
		// The admin asks the broker that the client takes for the leader. Without a refresh here it
		// would do so until the client's next refresh, by default ten minutes later.
		if client.RefreshMetadata(topics...) != nil {
			break
		}
		ages, err = lags(client, admin, group, topics)
		if moved(err) { // the brokers do not all know yet
			<-time.After(again.Backoff)
		}
	}
	return ages, err
}

// moved reports whether the broker that was asked is not the leader, or not yet.
func moved(err error) bool {
	return errors.Is(err, sarama.ErrNotLeaderForPartition) ||
		errors.Is(err, sarama.ErrLeaderNotAvailable) ||
		errors.Is(err, sarama.ErrFencedLeaderEpoch) || errors.Is(err, sarama.ErrUnknownLeaderEpoch)
}

func lags(client sarama.Client, admin sarama.ClusterAdmin, group string,
	topics []string) (map[string]time.Duration, error) {
	unread, err := unreadBy(admin, group, topics)
	if err != nil {
		return nil, err
	}
	ages, err := kafkadriver.Ages(time.Now(), topics, unread,
		func(at kafkadriver.TopicPartition, offset int64) (kafkadriver.Stretch, error) {
			return readFrom(client, at, offset)
		})
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: %w", err)
	}
	return ages, nil
}

// readFrom asks a partition's leader for the messages from offset on.
func readFrom(client sarama.Client, at kafkadriver.TopicPartition,
	offset int64) (kafkadriver.Stretch, error) {
	leader, err := client.Leader(at.Topic, at.Partition)
	if err != nil {
		return kafkadriver.Stretch{}, err
	}
	request := &sarama.FetchRequest{Version: 5, MaxWaitTime: lagWait, MinBytes: 1,
		MaxBytes: lagBytes, SessionEpoch: -1}
	if client.Config().Version.IsAtLeast(sarama.V2_1_0_0) {
		// in older versions a broker refuses to send what zstd has compressed (KIP-110)
		request.Version = 10
	}
	request.AddBlock(at.Topic, at.Partition, offset, lagBytes, -1)
	response, err := leader.Fetch(request)
	if err != nil {
		return kafkadriver.Stretch{}, err
	}
	block := response.GetBlock(at.Topic, at.Partition)
	switch {
	case block == nil:
		return kafkadriver.Stretch{}, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return kafkadriver.Stretch{}, block.Err
	}
	return firstOf(block.RecordsSet, offset)
}

// firstOf finds the first message from an offset on. A broker sends whole batches, so the first one
// may begin before the offset.
func firstOf(batches []*sarama.Records, offset int64) (kafkadriver.Stretch, error) {
	s := kafkadriver.Stretch{After: offset}
	for _, b := range batches {
		switch batch := b.RecordBatch; {
		case batch == nil:
			return s, errOldFormat
		case batch.PartialTrailingRecord: // the rest of it was not sent
			return s, nil
		case !batch.Control:
			for _, r := range batch.Records {
				if batch.FirstOffset+r.OffsetDelta < offset {
					continue
				}
				sent := batch.FirstTimestamp.Add(r.TimestampDelta)
				if batch.LogAppendTime {
					sent = batch.MaxTimestamp
				}
				return kafkadriver.Stretch{Found: true, Sent: sent}, nil
			}
		}
		s.After = max(s.After, b.RecordBatch.LastOffset()+1)
	}
	return s, nil
}

// Retentions returns how long topics keep messages; negative: without limit. For that long a
// replay, or a group that is behind, may bring a message back. A topic that is only compacted keeps
// messages without limit. It costs one round trip, and its retries. Its result is a rule of thumb,
// as that of [kafkaadapter.CheckWindow] is.
//
// The error is an [*dedup.InputError] for a nil admin or for no topics, or the reason why the
// brokers did not answer.
func Retentions(admin sarama.ClusterAdmin, topics ...string) (map[string]time.Duration, error) {
	switch {
	case admin == nil:
		return nil, &dedup.InputError{Field: "Admin", Reason: "is nil"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	asked := make([]*sarama.ConfigResource, len(topics))
	for i, topic := range topics {
		asked[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{"retention.ms", "cleanup.policy"}}
	}
	answers, err := admin.DescribeConfigs(asked, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the topics' retention cannot be asked for: %w", err)
	}
	found := make(map[string]time.Duration, len(topics))
	for _, answer := range answers {
		if answer.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf(
				"kafkasarama: the retention of topic %q cannot be asked for: %w", answer.Name,
				answer.ErrorCode)
		}
		values := make(map[string]string, len(answer.Configs))
		for _, c := range answer.Configs {
			values[c.Name] = c.Value
		}
		if found[answer.Name], err = kafkadriver.Retention(values); err != nil {
			return nil, fmt.Errorf("kafkasarama: topic %q: %w", answer.Name, err)
		}
	}
	for _, topic := range topics {
		if _, ok := found[topic]; !ok {
			return nil, fmt.Errorf("kafkasarama: the retention of topic %q was not answered",
				topic)
		}
	}
	return found, nil
}

// unreadBy returns what the group has not read of the topics' partitions.
func unreadBy(admin sarama.ClusterAdmin, group string,
	topics []string) (map[kafkadriver.TopicPartition]kafkadriver.Span, error) {
	partitions, err := partitionsOf(admin, topics)
	if err != nil {
		return nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(group, partitions)
	if errors.Is(err, sarama.ErrGroupIDNotFound) { // it has never run
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the offsets of group %q cannot be asked for: %w",
			group, err)
	}
	first, err1 := offsetsAt(admin, partitions, sarama.OffsetOldest)
	end, err2 := offsetsAt(admin, partitions, sarama.OffsetNewest)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	unread := make(map[kafkadriver.TopicPartition]kafkadriver.Span)
	for topic, numbers := range partitions {
		for _, n := range numbers {
			at, next := kafkadriver.TopicPartition{Topic: topic, Partition: n}, int64(-1)
			if block := committed.GetBlock(topic, n); block != nil {
				if block.Err != sarama.ErrNoError {
					return nil, fmt.Errorf("kafkasarama: the offset of group %q in %s/%d: %w",
						group, topic, n, block.Err)
				}
				next = block.Offset
			}
			unread[at] = kafkadriver.SpanOf(next, first[at], end[at])
		}
	}
	return unread, nil
}

// partitionsOf are the numbers of the topics' partitions, in order.
func partitionsOf(admin sarama.ClusterAdmin, topics []string) (map[string][]int32, error) {
	answers, err := admin.DescribeTopics(topics)
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the topics' partitions cannot be asked for: %w", err)
	}
	partitions := make(map[string][]int32, len(topics))
	for _, answer := range answers {
		if answer.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("kafkasarama: topic %q: %w", answer.Name, answer.Err)
		}
		for _, p := range answer.Partitions {
			partitions[answer.Name] = append(partitions[answer.Name], p.ID)
		}
		slices.Sort(partitions[answer.Name])
	}
	return partitions, nil
}

// offsetsAt returns for each partition the first offset from the time ms on, or the offset that a
// special value of ms asks for; -1 means that there is none.
func offsetsAt(admin sarama.ClusterAdmin, partitions map[string][]int32,
	ms int64) (map[kafkadriver.TopicPartition]int64, error) {
	asked := make(map[string]map[int32]int64, len(partitions))
	for topic, numbers := range partitions {
		asked[topic] = make(map[int32]int64, len(numbers))
		for _, n := range numbers {
			asked[topic][n] = ms
		}
	}
	answers, err := admin.ListOffsets(asked, nil)
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the partitions' offsets cannot be asked for: %w", err)
	}
	offsets := make(map[kafkadriver.TopicPartition]int64)
	for topic, numbers := range partitions {
		for _, n := range numbers {
			answer := answers[topic][n]
			if answer == nil {
				return nil, fmt.Errorf("kafkasarama: the offsets of %s/%d were not answered",
					topic, n)
			}
			// sarama reports success as nil or as ErrNoError
			if answer.Err != nil && !errors.Is(answer.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("kafkasarama: the offsets of %s/%d cannot be asked for: %w",
					topic, n, answer.Err)
			}
			offsets[kafkadriver.TopicPartition{Topic: topic, Partition: n}] = answer.Offset
		}
	}
	return offsets, nil
}
