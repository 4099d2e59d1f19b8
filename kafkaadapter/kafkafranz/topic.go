package kafkafranz

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/kafkaadapter"
)

const (
	// topicPatience is how long a topic may be unknown before another client is made. A new topic
	// is also unknown to some brokers for a moment.
	topicPatience = 3 * time.Second
	// topicSeries is the time without an error after which the next error counts as the first.
	topicSeries = 10 * time.Second
	// topicRest bounds the pause between two fetches of a partition that fails.
	topicRest = time.Second
)

// unknownTopics are topics whose UUID the brokers do not know. The zero value is ready, for one
// goroutine.
type unknownTopics struct {
	first, last map[string]time.Time
}

// persists notes that a topic was unknown, and reports whether it has been for too long.
func (u *unknownTopics) persists(topic string, now time.Time) bool {
	if u.first == nil {
		u.first, u.last = make(map[string]time.Time), make(map[string]time.Time)
	}
	if last, ok := u.last[topic]; !ok || now.Sub(last) > topicSeries {
		u.first[topic] = now
	}
	u.last[topic] = now
	return now.Sub(u.first[topic]) >= topicPatience
}

// topicGone is the error that ends a session. kerr.UnknownTopicID is retriable; this is not.
func topicGone(topic string) error {
	return fmt.Errorf("kafkafranz: %q: %w: %w", topic, kafkaadapter.ErrTopicRecreated,
		kerr.UnknownTopicID)
}

// fetching knows why partitions are not being fetched.
type fetching struct {
	mu      sync.Mutex
	gated   map[topicPartition]bool // the partition has asked for it
	resting map[topicPartition]bool // it failed a moment ago
	errs    map[topicPartition]int  // in a row
	last    map[topicPartition]time.Time
}

func newFetching() *fetching {
	return &fetching{
		gated: make(map[topicPartition]bool), resting: make(map[topicPartition]bool),
		errs: make(map[topicPartition]int), last: make(map[topicPartition]time.Time),
	}
}

// rest pauses the fetching of a partition after an error, longer with each error in a row, because
// the client would fetch it again at once.
func (s *session) rest(at topicPartition) {
	if at.partition < 0 { // of the whole topic
		return
	}
	f, now := s.fetching, time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.last[at]) > topicSeries {
		f.errs[at] = 0
	}
	f.last[at] = now
	pause := s.engine.Pause(f.errs[at], topicRest)
	f.errs[at]++
	if f.resting[at] {
		return
	}
	f.resting[at] = true
	s.client.PauseFetchPartitions(map[string][]int32{at.topic: {at.partition}})
	time.AfterFunc(pause, func() { s.rested(at) })
}

func (s *session) rested(at topicPartition) {
	f := s.fetching
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.resting, at)
	if !f.gated[at] {
		s.client.ResumeFetchPartitions(map[string][]int32{at.topic: {at.partition}})
	}
}

// gate pauses or resumes a partition at the partition's own request.
func (s *session) gate(at topicPartition, on bool) {
	f, set := s.fetching, map[string][]int32{at.topic: {at.partition}}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on:
		f.gated[at] = true
		s.client.PauseFetchPartitions(set)
	default:
		delete(f.gated, at)
		if !f.resting[at] {
			s.client.ResumeFetchPartitions(set)
		}
	}
}

// unknownTopic tolerates a topic that is unknown for a moment, and ends the session when it stays
// unknown. Its offsets are not committed any more then: before version 10 of OffsetCommit a commit
// identifies its topic by name alone, and would count for the topic that has the name now.
func (s *session) unknownTopic(at topicPartition, err error) error {
	if s.unknown.persists(at.topic, time.Now()) {
		s.commits.ForgetTopic(at.topic)
		return topicGone(at.topic)
	}
	s.engine.GroupError(fmt.Errorf("kafkafranz: %s/%d: %w", at.topic, at.partition, err))
	s.rest(at)
	return nil
}

// topicGone ends the session because the name stands for another topic by now.
func (s *session) topicGone(topic string) {
	s.commits.ForgetTopic(topic)
	s.stop(topicGone(topic))
}

// count asks the brokers for the number of a topic's partitions.
func (s *session) count(ctx context.Context, topic string) (int32, error) {
	answer, err := metadataOf([]string{topic}).RequestWith(ctx, s.client)
	if err != nil {
		return 0, err
	}
	for _, found := range answer.Topics {
		if found.Topic == nil || *found.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
			return 0, fmt.Errorf("kafkafranz: topic %q: %w", topic, err)
		}
		return int32(len(found.Partitions)), nil
	}
	return 0, fmt.Errorf("kafkafranz: topic %q is not in the brokers' answer", topic)
}
