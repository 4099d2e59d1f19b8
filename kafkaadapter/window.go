package kafkaadapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/lag"
	"github.com/onceward/onceward/kafkaadapter/internal/setting"
)

// WindowError says that messages of a topic may come again when their records are forgotten.
type WindowError struct {
	// Topic of the messages.
	Topic string
	// Retention is how long the topic keeps them, when that is longer than the window.
	// Negative: without limit. 0: it is not longer.
	Retention time.Duration
	// Lagging partitions, in order, have messages older than the window that the group has
	// not read. A duplicate of one may have been recorded, and forgotten, since.
	Lagging []int32
	// Window is how long a record is kept.
	Window time.Duration
}

// Error implements error.
func (e *WindowError) Error() string {
	var reasons []string
	switch {
	case e.Retention < 0:
		reasons = append(reasons, "keeps messages without limit")
	case e.Retention > 0:
		reasons = append(reasons, fmt.Sprintf("keeps messages for %v", e.Retention))
	}
	if len(e.Lagging) > 0 {
		reasons = append(reasons,
			fmt.Sprintf("has older ones that are not read in the partitions %v", e.Lagging))
	}
	return fmt.Sprintf("kafkaadapter: records are kept for %v, and topic %q %s", e.Window,
		e.Topic, strings.Join(reasons, ", and "))
}

// CheckWindow compares the window of a Deduper with what can come again: what its topics
// keep (retention.ms; a topic that is only compacted keeps without limit), and what its
// group, unless that is empty, has not read yet. It returns an error per topic that
// exceeds the window, to be logged or counted, before Run and now and then. It costs one
// round trip, five more for a group, and their retries.
//
// It is a rule of thumb. Kafka drops whole segments, so a message may live up to
// segment.ms longer. Behind the last message of a topic that nobody writes to there may
// be markers of transactions, which nobody can read: they look like a lag.
//
// err is an [*dedup.InputError] for a nil admin, no topics or a window that is not
// positive, or why the brokers did not answer.
func CheckWindow(admin sarama.ClusterAdmin, window time.Duration, group string,
	topics ...string) (exceeded []*WindowError, err error) {
	switch {
	case admin == nil:
		return nil, &dedup.InputError{Field: "Admin", Reason: "is nil"}
	case window <= 0:
		return nil, &dedup.InputError{Field: "Window",
			Reason: fmt.Sprintf("is %v; it must be positive", window)}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	retentions, err := retentionsOf(admin, topics)
	if err != nil {
		return nil, err
	}
	var lagging map[string][]int32
	if group != "" {
		if lagging, err = laggingIn(admin, time.Now().Add(-window), group, topics); err != nil {
			return nil, err
		}
	}
	for _, topic := range topics {
		e := &WindowError{Topic: topic, Lagging: lagging[topic], Window: window}
		if keeps := retentions[topic]; keeps < 0 || keeps > window {
			e.Retention = keeps
		}
		if e.Retention != 0 || len(e.Lagging) > 0 {
			exceeded = append(exceeded, e)
		}
	}
	return exceeded, nil
}

// Retentions is how long topics keep messages, negative without limit: for so long a replay, or a
// group that is behind, may bring one back. A topic that is only compacted keeps without limit. It
// costs one round trip, and its retries, and is the rule of thumb that [CheckWindow] is.
//
// The error is an [*dedup.InputError] for a nil admin and for no topics, or why the brokers did not
// answer.
func Retentions(admin sarama.ClusterAdmin, topics ...string) (map[string]time.Duration, error) {
	switch {
	case admin == nil:
		return nil, &dedup.InputError{Field: "Admin", Reason: "is nil"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	return retentionsOf(admin, topics)
}

// retentionsOf is how long topics keep messages, negative without limit.
func retentionsOf(admin sarama.ClusterAdmin, topics []string) (map[string]time.Duration, error) {
	asked := make([]*sarama.ConfigResource, len(topics))
	for i, topic := range topics {
		asked[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{"retention.ms", "cleanup.policy"}}
	}
	answers, err := admin.DescribeConfigs(asked, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: the topics' retention cannot be asked for: %w", err)
	}
	found := make(map[string]time.Duration, len(topics))
	for _, answer := range answers {
		if answer.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf(
				"kafkaadapter: the retention of topic %q cannot be asked for: %w", answer.Name,
				answer.ErrorCode)
		}
		if found[answer.Name], err = retentionIn(answer.Configs); err != nil {
			return nil, fmt.Errorf("kafkaadapter: topic %q: %w", answer.Name, err)
		}
	}
	for _, topic := range topics {
		if _, ok := found[topic]; !ok {
			return nil, fmt.Errorf("kafkaadapter: the retention of topic %q was not answered",
				topic)
		}
	}
	return found, nil
}

// retentionIn reads a topic's configuration.
func retentionIn(entries []sarama.ConfigEntry) (time.Duration, error) {
	values := map[string]string{}
	for _, e := range entries {
		values[e.Name] = e.Value
	}
	return setting.Retention(values)
}

// laggingIn are the partitions in which the group has not read everything from before.
func laggingIn(admin sarama.ClusterAdmin, before time.Time, group string,
	topics []string) (map[string][]int32, error) {
	partitions, unread, err := unreadBy(admin, group, topics)
	if err != nil {
		return nil, err
	}
	recent, err := offsetsAt(admin, partitions, before.UnixMilli())
	if err != nil {
		return nil, err
	}
	lagging := make(map[string][]int32)
	for topic, numbers := range partitions {
		for _, n := range numbers {
			at := lag.Place{Topic: topic, Partition: n}
			until := recent[at]
			if until < 0 {
				until = unread[at].End // nothing is recent
			}
			if unread[at].Next < until {
				lagging[topic] = append(lagging[topic], n)
			}
		}
	}
	return lagging, nil
}

// unreadBy is what the group has not read of the topics' partitions, and their numbers.
func unreadBy(admin sarama.ClusterAdmin, group string, topics []string) (map[string][]int32,
	map[lag.Place]lag.Span, error) {
	partitions, err := partitionsOf(admin, topics)
	if err != nil {
		return nil, nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(group, partitions)
	if errors.Is(err, sarama.ErrGroupIDNotFound) { // it has never run
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("kafkaadapter: the offsets of group %q cannot be asked for: %w",
			group, err)
	}
	first, err1 := offsetsAt(admin, partitions, sarama.OffsetOldest)
	end, err2 := offsetsAt(admin, partitions, sarama.OffsetNewest)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	unread := make(map[lag.Place]lag.Span)
	for topic, numbers := range partitions {
		for _, n := range numbers {
			at, next := lag.Place{Topic: topic, Partition: n}, int64(-1)
			if block := committed.GetBlock(topic, n); block != nil {
				if block.Err != sarama.ErrNoError {
					return nil, nil, fmt.Errorf("kafkaadapter: the offset of group %q in %s/%d: %w",
						group, topic, n, block.Err)
				}
				next = block.Offset
			}
			unread[at] = lag.SpanOf(next, first[at], end[at])
		}
	}
	return partitions, unread, nil
}

// partitionsOf are the numbers of the topics' partitions, in order.
func partitionsOf(admin sarama.ClusterAdmin, topics []string) (map[string][]int32, error) {
	answers, err := admin.DescribeTopics(topics)
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: the topics' partitions cannot be asked for: %w", err)
	}
	partitions := make(map[string][]int32, len(topics))
	for _, answer := range answers {
		if answer.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("kafkaadapter: topic %q: %w", answer.Name, answer.Err)
		}
		for _, p := range answer.Partitions {
			partitions[answer.Name] = append(partitions[answer.Name], p.ID)
		}
		slices.Sort(partitions[answer.Name])
	}
	return partitions, nil
}

// offsetsAt are the partitions' first offsets from a time on, or its special values; -1
// where there is none.
func offsetsAt(admin sarama.ClusterAdmin, partitions map[string][]int32,
	ms int64) (map[lag.Place]int64, error) {
	asked := make(map[string]map[int32]int64, len(partitions))
	for topic, numbers := range partitions {
		asked[topic] = make(map[int32]int64, len(numbers))
		for _, n := range numbers {
			asked[topic][n] = ms
		}
	}
	answers, err := admin.ListOffsets(asked, nil)
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: the partitions' offsets cannot be asked for: %w", err)
	}
	offsets := make(map[lag.Place]int64)
	for topic, numbers := range partitions {
		for _, n := range numbers {
			answer := answers[topic][n]
			if answer == nil {
				return nil, fmt.Errorf("kafkaadapter: the offsets of %s/%d were not answered",
					topic, n)
			}
			// sarama says so in both ways
			if answer.Err != nil && !errors.Is(answer.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("kafkaadapter: the offsets of %s/%d cannot be asked for: %w",
					topic, n, answer.Err)
			}
			offsets[lag.Place{Topic: topic, Partition: n}] = answer.Offset
		}
	}
	return offsets, nil
}
