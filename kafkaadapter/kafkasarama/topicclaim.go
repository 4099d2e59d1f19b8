package kafkasarama

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// errReadAgain: the offset that the session begins a partition with may be of another topic.
var errReadAgain = errors.New("kafkasarama: the offset to begin with is no longer the group's")

// rewind commits an offset in a session that has the partition.
type rewind func(topic string, partition int32, next int64, metadata string) error

// claimed pins the topic of a partition that is assigned, before its first message is taken, and
// compares it with the offset that the partition begins with. sarama asked for that offset before:
//
//  1. sarama fetches the offset 200 of the old topic.
//  2. The topic is deleted, and its offset with it; another one is created.
//  3. The partition begins at 200 of the new topic.
//
// So the offset is asked for again, after the UUID. It reports false when the partition must not
// be read: the session ends then, and the next one begins where it should. It asks until it has
// an answer or ctx ends.
func (s *sessionTopics) claimed(ctx context.Context, topic string, partition int32, initial int64,
	commit rewind) bool {
	for failures := 0; ; failures++ {
		ok, err := s.claim(topic, partition, initial, commit)
		if err == nil {
			return ok
		}
		if failures == 0 {
			s.told(fmt.Errorf("%s/%d cannot begin yet: %w", topic, partition, err))
		}
		if backoff.Sleep(ctx, s.retry.Delay(failures, 0, nil)) != nil {
			return false
		}
	}
}

func (s *sessionTopics) claim(topic string, partition int32, initial int64,
	commit rewind) (bool, error) {
	found, err := s.look([]string{topic})
	if err != nil {
		return false, err
	}
	state, known := found[topic]
	switch {
	case !known || state.absent:
		s.end(fmt.Errorf("kafkasarama: topic %q: %w", topic, sarama.ErrUnknownTopicOrPartition))
		return false, nil
	case state.uuid == "":
		s.noUUID(topic)
		return true, nil
	}
	s.pin(topic, state.uuid)
	s.mu.Lock()
	if s.uuids[topic] == "" {
		s.uuids[topic] = state.uuid
	}
	s.mu.Unlock()
	s.compare(found)
	if s.isStale(topic) {
		return false, nil
	}
	return s.begins(topic, partition, initial, state.uuid, commit)
}

// begins compares where sarama begins with what the group has committed, and for which topic.
func (s *sessionTopics) begins(topic string, partition int32, initial int64, uuid string,
	commit rewind) (bool, error) {
	offset, metadata, err := s.source.Committed(s.group, topic, partition)
	if err != nil {
		return false, fmt.Errorf("kafkasarama: its offset cannot be asked for: %w", err)
	}
	stamped := msgid.Stamped(metadata)
	switch {
	case offset >= 0 && stamped != "" && stamped != uuid:
		return false, s.restart(topic, partition, uuid,
			commit, fmt.Errorf("the offset %d was committed for UUID %s", offset, stamped))
	case offset < 0 && initial == sarama.OffsetNewest && s.replaced(topic, uuid):
		return false, s.restart(topic, partition, uuid,
			commit, errors.New("nothing is committed for it"))
	case offset < 0 && initial >= 0, offset >= 0 && initial > offset:
		s.end(fmt.Errorf("%w: %s/%d begins at %d, committed is %d", errReadAgain, topic, partition,
			initial, offset))
		return false, nil
	}
	return true, nil
}

// restart commits the start of a topic, with which the next session begins.
func (s *sessionTopics) restart(topic string, partition int32, uuid string, commit rewind,
	why error) error {
	oldest, err := s.source.Oldest(topic, partition)
	if err == nil {
		err = commit(topic, partition, oldest, msgid.Stamp(uuid))
	}
	if err != nil {
		return fmt.Errorf("kafkasarama: its start cannot be committed: %w", err)
	}
	s.recreated(topic, why)
	return nil
}
