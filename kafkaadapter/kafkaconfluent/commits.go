package kafkaconfluent

import (
	"context"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/kafkaadapter"
)

// commit makes one attempt. The committer repeats it while anything is not confirmed.
func (s *session) commit() {
	all := s.offsets.Due(s.base)
	if len(all) == 0 {
		return
	}
	parts := make([]kafka.TopicPartition, len(all))
	for i, d := range all {
		parts[i] = place(d.Topic, d.Partition, d.Next, d.Metadata)
	}
	answers := s.send(parts)
	var fencing error
	for i, d := range all {
		if isFencing(codeOf(answers[i])) && s.offsets.Holds(d) {
			fencing = answers[i]
		}
	}
	if fencing != nil { // before any hook is called
		s.fence(fencing)
	}
	for i, d := range all {
		s.offsets.Ended(d, answers[i])
	}
}

func place(topic string, partition int32, offset int64, metadata string) kafka.TopicPartition {
	at := kafka.TopicPartition{Topic: &topic, Partition: partition, Offset: kafka.Offset(offset)}
	if metadata != "" {
		at.Metadata = &metadata
	}
	return at
}

// send commits, and returns an answer for each partition. When librdkafka has confirmed no
// partition, send returns one error for all.
func (s *session) send(parts []kafka.TopicPartition) []error {
	var done []kafka.TopicPartition
	err := s.use(func() (err error) {
		done, err = s.client.CommitOffsets(parts)
		return err
	})
	answers := make([]error, len(parts))
	for i, part := range parts {
		answers[i] = err
		if err != nil {
			continue
		}
		answers[i] = fmt.Errorf("kafkaconfluent: the commit of %v was not answered", part)
		for _, d := range done {
			if *d.Topic == *part.Topic && d.Partition == part.Partition {
				answers[i] = d.Error
			}
		}
	}
	return answers
}

// rewind commits the start of a partition whose topic was replaced by another one of its name.
func (s *session) rewind(_ context.Context, topic string, partition int32, next int64,
	metadata string) error {
	return s.send([]kafka.TopicPartition{place(topic, partition, next, metadata)})[0]
}

// isFencing reports whether this answer to a commit says that the member's partitions belong to
// another member. After ErrIllegalGeneration librdkafka itself revokes them as lost, and joins
// again. ErrStaleMemberEpoch is not fencing: a KIP-848 coordinator counts the epoch up before the
// member hears of it.
func isFencing(code kafka.ErrorCode) bool {
	switch code {
	case kafka.ErrUnknownMemberID, kafka.ErrFencedInstanceID, kafka.ErrFencedMemberEpoch:
		return true
	}
	return false
}

// fence ends the session: its partitions do not belong to this member any more.
func (s *session) fence(answer error) {
	cause := fmt.Errorf("%w: %w", kafkaadapter.ErrFenced, answer)
	s.mu.Lock()
	s.over = true
	if codeOf(answer) == kafka.ErrFencedInstanceID {
		s.fatal = cause // librdkafka has made it fatal
	}
	s.mu.Unlock()
	s.lose(cause)
	s.stop(cause)
}

// lose ends the partitions without a drain and without a commit.
func (s *session) lose(cause error) {
	s.offsets.ForgetTopic("")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.assigned {
		a.lose(cause)
	}
}
