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
