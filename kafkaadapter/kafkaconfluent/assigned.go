package kafkaconfluent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// beginPatience is how long the partitions of an assignment may take to begin. Nothing is polled
// meanwhile.
const beginPatience = 10 * time.Second

// assigned is a partition that this member has.
type assigned struct {
	s    *session
	at   kafkadriver.TopicPartition
	uuid string
	p    *kafkadriver.Partition
	lose context.CancelCauseFunc // ends it without a drain; the cause wraps ErrFenced
	high atomic.Int64            // the end of the log, as of the last fetch

	// Only the polls use these.
	batch []kafkaadapter.Message
	next  int64 // the offset after the last message
}

// rebalance is called inside a poll, or inside Close, and must hand the partitions on to
// librdkafka. Until it has returned they belong to this member, unless they are lost.
func (s *session) rebalance(client *kafka.Consumer, event kafka.Event) error {
	gradual := client.GetRebalanceProtocol() == "COOPERATIVE"
	var err error
	switch e := event.(type) {
	case kafka.AssignedPartitions:
		parts := s.begin(e.Partitions)
		s.unassigned.assigned(parts)
		if gradual {
			err = client.IncrementalAssign(parts)
		} else {
			err = client.Assign(parts)
		}
	case kafka.RevokedPartitions:
		s.revoke(e.Partitions, client.AssignmentLost())
		if gradual {
			err = client.IncrementalUnassign(e.Partitions)
		} else {
			err = client.Unassign()
		}
	}
	if err != nil {
		s.stop(fmt.Errorf("kafkaconfluent: %v: %w", event, err))
	}
	return err
}

func topicPartitionOf(part *kafka.TopicPartition) kafkadriver.TopicPartition {
	return kafkadriver.TopicPartition{Topic: *part.Topic, Partition: part.Partition}
}

// begin starts the partitions, and returns them with the offsets at which they begin. If one of
// them cannot begin, the session ends.
func (s *session) begin(parts []kafka.TopicPartition) []kafka.TopicPartition {
	s.mu.Lock()
	over := s.over // fenced, or being closed
	s.mu.Unlock()
	if over || len(parts) == 0 {
		return parts
	}
	ctx, cancel := context.WithTimeout(s.ctx, beginPatience)
	defer cancel()
	found, err := s.committed(ctx, parts)
	if err != nil {
		s.stop(fmt.Errorf("kafkaconfluent: the group's offsets cannot be asked for: %w", err))
		return parts
	}
	begins := make([]kafka.TopicPartition, len(found))
	var starting sync.WaitGroup
	for i := range found {
		begins[i] = kafka.TopicPartition{Topic: found[i].Topic, Partition: found[i].Partition,
			Offset: found[i].Offset}
		if begins[i].Offset < 0 {
			begins[i].Offset = s.start
		}
		starting.Go(func() { s.claim(ctx, topicPartitionOf(&begins[i]), int64(begins[i].Offset)) })
	}
	starting.Wait()
	return begins
}

// claim starts a partition after it has checked that the offset was committed for this topic, and
// not for a deleted one of the same name.
func (s *session) claim(ctx context.Context, at kafkadriver.TopicPartition, offset int64) {
	if !s.topics.Claimed(ctx, at.Topic, at.Partition, offset, s.rewind) {
		s.stop(fmt.Errorf("kafkaconfluent: %s/%d could not begin within %v", at.Topic,
			at.Partition, beginPatience)) // or it has ended for another reason
		return
	}
	a := &assigned{s: s, at: at, uuid: s.topics.UUID(at.Topic)}
	if e := s.engine; a.uuid == "" && (e.RangeHandler != nil || e.Positions) {
		s.stop(fmt.Errorf("kafkaconfluent: topic %q has no UUID, which Positions and a RangeHandler need: brokers must be 2.8 at least", at.Topic))
		return
	}
	if err := a.start(offset); err != nil {
		a.lose(err)
		s.stop(err)
		return
	}
	s.mu.Lock()
	s.assigned[at] = a
	late := s.over
	s.mu.Unlock()
	if late {
		a.lose(kafkaadapter.ErrFenced)
	}
}

func (a *assigned) start(offset int64) (err error) {
	s, at := a.s, a.at
	ctx, lose := context.WithCancelCause(s.base)
	a.lose = lose
	parts := []kafka.TopicPartition{{Topic: &at.Topic, Partition: at.Partition}}
	a.p, err = s.engine.Assign(kafkadriver.Assignment{
		Topic: at.Topic, Partition: at.Partition, Context: ctx, Fenced: ctx,
		Committer: s.committer, Counts: s.counts, LogEnd: a.high.Load, Begin: offset,
		Halt: func() { s.stop(context.Canceled) },
		Pause: func(on bool) {
			_ = s.use(func() error {
				if on {
					return s.client.Pause(parts)
				}
				return s.client.Resume(parts)
			})
		},
	})
	if err != nil {
		return err
	}
	s.offsets.Add(at.Topic, at.Partition)
	return a.p.Start()
}

// revoke drains partitions that must be given up. A lost one already belongs to another member.
func (s *session) revoke(parts []kafka.TopicPartition, lost bool) {
	partitions := make([]kafkadriver.TopicPartition, len(parts))
	for i := range parts {
		partitions[i] = topicPartitionOf(&parts[i])
	}
	if lost {
		s.lose(kafkaadapter.ErrFenced)
	}
	s.giveUp(partitions)
}

// giveUp ends partitions, all at the same time: they share one drain budget. If they are lost
// meanwhile, librdkafka does not say so: during a rebalance it leaves AssignmentLost as it is. Only
// the answer to a commit shows it.
func (s *session) giveUp(partitions []kafkadriver.TopicPartition) {
	var draining sync.WaitGroup
	for _, at := range partitions {
		if a := s.find(at); a != nil {
			draining.Go(a.giveUp)
		}
	}
	draining.Wait()
}

func (s *session) find(at kafkadriver.TopicPartition) *assigned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned[at]
}

func (a *assigned) giveUp() {
	err := a.p.End()
	a.lose(nil)
	a.s.offsets.Forget(a.at.Topic, a.at.Partition)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	delete(a.s.assigned, a.at)
	if err != nil {
		a.s.failed = errors.Join(a.s.failed, err)
	}
}

// take hands the messages of the polls to the partition.
func (a *assigned) take() error {
	messages := a.batch
	a.batch = nil // the engine keeps it
	if a.p.Context().Err() != nil {
		return nil // it is being given up
	}
	if _, high, err := a.s.client.GetWatermarkOffsets(a.at.Topic, a.at.Partition); err == nil {
		a.high.Store(high)
	}
	return a.p.Take(messages)
}
