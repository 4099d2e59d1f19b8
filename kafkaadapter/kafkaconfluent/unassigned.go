package kafkaconfluent

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// settleTime is how long after an assignment the consumer asks the group whether a topic was left
// out.
const settleTime = 5 * time.Second

// unassigned looks for topics that the group has left out of an assignment:
//
//  1. The member that assigns asks one broker for the partitions of the topics.
//  2. A broker that has not heard of a new topic yet reports none, so nobody is assigned them.
//  3. librdkafka's next look at the topics finds the partitions. But this driver has asked for
//     them before the member joined, so librdkafka sees no change and does not join again.
//
// The session must end then, so that the member joins again. Only the polls use it.
type unassigned struct {
	topics []string  // that this member has subscribed to
	due    time.Time // zero: nothing is left to look for
}

// assigned notes an assignment: of no partitions, or of partitions of some or all topics.
func (u *unassigned) assigned(parts []kafka.TopicPartition) {
	has := make(map[string]bool, len(u.topics))
	for _, p := range parts {
		has[*p.Topic] = true
	}
	if u.due = time.Now().Add(settleTime); len(has) == len(u.topics) {
		u.due = time.Time{}
	}
}

// lookForUnassigned asks the group when it is due. It ends the session if no member has a partition
// of a topic.
func (s *session) lookForUnassigned() {
	if s.unassigned.due.IsZero() || time.Now().Before(s.unassigned.due) {
		return
	}
	s.unassigned.due = time.Time{}
	state, has := s.ownedTopics()
	switch state {
	case kafka.ConsumerGroupStateStable:
	case kafka.ConsumerGroupStateDead, kafka.ConsumerGroupStateEmpty:
		return // the brokers assign the partitions of the group (KIP-848), or it has lost us
	default:
		s.unassigned.due = time.Now().Add(settleTime)
		return
	}
	for _, topic := range s.unassigned.topics {
		if !has[topic] {
			s.stop(fmt.Errorf("kafkaconfluent: no member of the group was assigned a partition of topic %q; joining again", topic))
			return
		}
	}
}

// ownedTopics returns the state of the group and the topics of which members have partitions.
func (s *session) ownedTopics() (state kafka.ConsumerGroupState, has map[string]bool) {
	ctx, cancel := context.WithTimeout(s.ctx, askLimit)
	defer cancel()
	var found kafka.DescribeConsumerGroupsResult
	err := s.use(func() (err error) {
		found, err = s.admin.DescribeConsumerGroups(ctx, []string{s.engine.Group()})
		return err
	})
	if err != nil || len(found.ConsumerGroupDescriptions) != 1 {
		return kafka.ConsumerGroupStateUnknown, nil
	}
	g := found.ConsumerGroupDescriptions[0]
	has = make(map[string]bool)
	for _, m := range g.Members {
		for _, p := range m.Assignment.TopicPartitions {
			has[*p.Topic] = true
		}
	}
	return g.State, has
}
