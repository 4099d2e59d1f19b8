package kafkadriver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Span is what a group has not read of a partition: from Next on, without End.
type Span struct{ Next, End int64 }

// SpanOf is that of a partition that begins at oldest and ends before newest. Below zero nothing is
// committed: the group begins at the oldest message, as it does where its offset is gone from the
// log.
func SpanOf(committed, oldest, newest int64) Span {
	return Span{Next: max(committed, oldest), End: newest}
}

// Stretch is what a broker has sent of a partition.
type Stretch struct {
	Found bool      // there is a message in it, and not only marks of transactions
	Sent  time.Time // when the first of them was sent, if Found
	After int64     // the offset behind what was looked at, if not
}

// Ages is how old the first unread message is at now, the oldest one of a topic's partitions, and 0
// for a topic that is read. read returns what begins at an offset. It is asked one partition after
// the other, and again where compaction, or a transaction's end, has left no message in what it
// returned.
func Ages(now time.Time, topics []string, unread map[TopicPartition]Span,
	read func(at TopicPartition, offset int64) (Stretch, error)) (map[string]time.Duration, error) {
	ages := make(map[string]time.Duration, len(topics))
	for _, topic := range topics {
		ages[topic] = 0
	}
	for _, at := range slices.SortedFunc(maps.Keys(unread), compare) {
		for next := unread[at].Next; next < unread[at].End; {
			s, err := read(at, next)
			switch {
			case err != nil:
				return nil, fmt.Errorf("the messages of %s/%d from %d on cannot be read: %w",
					at.Topic, at.Partition, next, err)
			case s.Found && s.Sent.UnixMilli() < 0: // the protocol's -1 says that there is none
				return nil, fmt.Errorf("the first message of %s/%d from %d on has no time",
					at.Topic, at.Partition, next)
			case s.Found:
				// a clock that is ahead makes no lag
				ages[at.Topic] = max(ages[at.Topic], now.Sub(s.Sent))
			case s.After <= next: // it would be asked forever
				return nil, fmt.Errorf("the messages of %s/%d from %d to %d were not sent",
					at.Topic, at.Partition, next, unread[at].End)
			}
			if s.Found {
				break
			}
			next = s.After
		}
	}
	return ages, nil
}

func compare(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
