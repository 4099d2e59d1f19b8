package kafkadriver

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

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
