package kafkadriver

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Span is the part of a partition that a group has not read: from Next up to, but not including,
// End.
type Span struct{ Next, End int64 }

// SpanOf is the Span of a partition whose log begins at oldest and ends before newest. A negative
// committed means that nothing is committed: the group begins at the oldest message, as it does
// when its offset is gone from the log.
func SpanOf(committed, oldest, newest int64) Span {
	return Span{Next: max(committed, oldest), End: newest}
}

// Stretch is a part of a partition that a broker has sent.
type Stretch struct {
	Found bool      // it has a message, and not only markers of transactions
	Sent  time.Time // when the first message was sent, if Found
	After int64     // the offset after this part, if not Found
}

// Ages returns for each topic the age, at the time now, of the oldest of its partitions' first
// unread messages, and 0 for a topic that is fully read. read returns the part that begins at an
// offset. It is called for one partition after the other, and again where compaction, or a
// transaction's end, has left no message in the part that it returned.
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
				// a clock that is ahead must not make the lag negative
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

// Retention reads from a topic's configuration how long it keeps messages; negative: without limit.
// Only a policy that deletes has a retention.
func Retention(values map[string]string) (time.Duration, error) {
	policy, is := values["cleanup.policy"]
	if !is {
		policy = "delete"
	}
	ms, err := strconv.ParseInt(values["retention.ms"], 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("retention.ms is %q: %w", values["retention.ms"], err)
	case ms < 0, ms > math.MaxInt64/int64(time.Millisecond), !strings.Contains(policy, "delete"):
		return -1, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}
