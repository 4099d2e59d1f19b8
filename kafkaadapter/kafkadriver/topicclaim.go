package kafkadriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

var errUntold = errors.New("the brokers do not report it")

// errReadAgain: the offset at which the session begins a partition may be of another topic.
var errReadAgain = errors.New("kafkaadapter: the offset to begin with is no longer the group's")

// Rewind commits an offset in a session that has the partition.
type Rewind func(ctx context.Context, topic string, partition int32, next int64,
	metadata string) error

// Claimed pins the topic of a partition that is assigned, before its first message is taken, and
// compares it with the offset at which the partition begins. The client asked for that offset
// earlier, so it may be stale:
//
//  1. The client fetches the offset 200 of the old topic.
//  2. The topic is deleted, and its offset with it; another one is created.
//  3. The partition begins at 200 of the new topic.
//
// So Claimed asks for the offset again, after the UUID. It reports false when the partition must
// not be read: the session ends then, and the next one begins where it should. It asks until it has
// an answer or ctx ends.
func (s *SessionTopics) Claimed(ctx context.Context, topic string, partition int32, initial int64,
	commit Rewind) bool {
	for failures := 0; ; failures++ {
		ok, err := s.claim(ctx, topic, partition, initial, commit)
		if err == nil {
			return ok
		}
		if failures == 0 && ctx.Err() == nil {
			s.all.report(fmt.Errorf("%s/%d cannot begin yet: %w", topic, partition, err))
		}
		if backoff.Sleep(ctx, s.all.pause(failures)) != nil {
			return false
		}
	}
}

func (s *SessionTopics) claim(ctx context.Context, topic string, partition int32, initial int64,
	commit Rewind) (bool, error) {
	found, err := s.all.look(ctx, []string{topic})
	if err != nil {
		return false, err
	}
	state, known := found[topic]
	switch {
	case !known || state.Absent != nil:
		s.end(absentError(topic, cmp.Or(state.Absent, errUntold)))
		return false, nil
	case state.UUID == "":
		s.all.noUUID(topic)
		return true, nil
	}
	s.all.pin(topic, state.UUID)
	s.mu.Lock()
	s.uuids[topic] = cmp.Or(s.uuids[topic], state.UUID)
	s.mu.Unlock()
	s.compare(found)
	if s.stale.has(topic) {
		return false, nil
	}
	return s.begins(ctx, topic, partition, initial, state.UUID, commit)
}

// begins compares the offset at which the client begins with the group's committed offset, and the
// topic with the one for which that offset was committed.
func (s *SessionTopics) begins(ctx context.Context, topic string, partition int32, initial int64,
	uuid string, commit Rewind) (bool, error) {
	offset, metadata, err := s.all.source.Committed(ctx, topic, partition)
	if err != nil {
		return false, fmt.Errorf("kafkaadapter: its offset cannot be asked for: %w", err)
	}
	stamped := msgid.Stamped(metadata)
	switch {
	case offset >= 0 && stamped != "" && stamped != uuid:
		return false, s.restart(ctx, topic, partition, uuid,
			commit, fmt.Errorf("the offset %d was committed for UUID %s", offset, stamped))
	case offset < 0 && initial == atEnd && s.all.replaced(topic, uuid):
		return false, s.restart(ctx, topic, partition, uuid,
			commit, errors.New("nothing is committed for it"))
	case offset < 0 && initial >= 0, offset >= 0 && initial > offset:
		s.end(fmt.Errorf("%w: %s/%d begins at %d, committed is %d", errReadAgain, topic, partition,
			initial, offset))
		return false, nil
	case offset >= 0:
		cut, err := s.cut(ctx, topic, partition, offset, uuid, commit)
		return err == nil && !cut, err
	}
	return true, nil
}

// restart commits the start of a topic, at which the next session begins.
func (s *SessionTopics) restart(ctx context.Context, topic string, partition int32, uuid string,
	commit Rewind, why error) error {
	oldest, _, err := s.all.source.Bounds(ctx, topic, partition)
	if err == nil {
		err = commit(ctx, topic, partition, oldest, msgid.Stamp(uuid))
	}
	if err != nil {
		return fmt.Errorf("kafkaadapter: its start cannot be committed: %w", err)
	}
	s.recreated(topic, why)
	return nil
}

// atStart is the initial offset of a partition that a client reads from its start.
const atStart = -2

// OutOfRange notes that a broker has refused to read a partition at an offset. When this process
// begins the partition the next time, it checks whether the log was cut, even if the log has grown
// beyond that offset since.
func (w *Topics) OutOfRange(topic string, partition int32) {
	w.refused.add(TopicPartition{topic, partition})
}

// Recheck checks partitions that were out of range. It is for a client that does not begin a
// partition whose offset is out of range. After a rewind the session ends.
func (s *SessionTopics) Recheck(ctx context.Context, assigned map[string][]int32, commit Rewind) {
	for topic, partitions := range assigned {
		for _, partition := range partitions {
			if s.all.refused.has(TopicPartition{topic, partition}) {
				s.Claimed(ctx, topic, partition, atStart, commit)
			}
		}
	}
}

// cut reports whether the log was cut below the group's offset, as an unclean election does. If so,
// it commits an earlier offset and ends the session: new messages have offsets that were committed
// before.
//
// This check cannot find out where the log was cut: that takes leader epochs (KIP-320), and a
// client that has them does not need this check. All messages of one window are read again, or the
// whole log where the window is not known. Those that were handled before have records, and are
// duplicates.
func (s *SessionTopics) cut(ctx context.Context, topic string, partition int32, offset int64,
	uuid string, commit Rewind) (bool, error) {
	at := TopicPartition{topic, partition}
	oldest, end, err := s.all.source.Bounds(ctx, topic, partition)
	if err != nil {
		return false, fmt.Errorf("kafkaadapter: its log cannot be asked for: %w", err)
	}
	if offset <= end && (offset < oldest || !s.all.refused.has(at)) {
		s.all.refused.remove(at)
		return false, nil
	}
	next := oldest
	if s.all.window > 0 {
		next, err = s.all.source.Since(ctx, topic, partition, time.Now().Add(-s.all.window))
		if next < 0 {
			next = end
		}
		next = max(oldest, min(next, offset, end))
	}
	if err == nil && next == offset { // it has been read again already
		s.all.refused.remove(at)
		return false, nil
	}
	if err == nil {
		err = commit(ctx, topic, partition, next, msgid.Stamp(uuid))
	}
	if err != nil {
		return false, fmt.Errorf("kafkaadapter: where to read again cannot be committed: %w", err)
	}
	s.all.refused.remove(at)
	err = fmt.Errorf("%w: %s/%d: the offset %d was committed, and the log ends at %d; it is read again from %d",
		kafkaadapter.ErrLogCut, topic, partition, offset, end, next)
	s.all.report(err)
	s.end(err)
	return true, nil
}
