package kafkaconfluent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// askLimit bounds a question to the brokers if its caller sets no limit.
const askLimit = 5 * time.Second

var errClosed = errors.New("kafkaconfluent: the client is closed")

// source is the kafkadriver.TopicSource of a Consumer, with the client of the session.
type source struct{ c *Consumer }

// Topics implements [kafkadriver.TopicSource].
func (s source) Topics(ctx context.Context, topics []string) (map[string]kafkadriver.TopicState,
	error) {
	found, err := s.c.current.Load().describeTopics(ctx, topics)
	if err != nil {
		return nil, err
	}
	states := make(map[string]kafkadriver.TopicState, len(topics))
	for _, t := range found {
		switch t.Error.Code() {
		case kafka.ErrNoError:
			var uuid [16]byte
			binary.BigEndian.PutUint64(uuid[:8], uint64(t.TopicID.GetMostSignificantBits()))
			binary.BigEndian.PutUint64(uuid[8:], uint64(t.TopicID.GetLeastSignificantBits()))
			states[t.Name] = kafkadriver.TopicState{UUID: kafkadriver.TopicID(uuid)}
		case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic:
			states[t.Name] = kafkadriver.TopicState{Absent: t.Error}
		}
	}
	return states, nil
}

// Committed implements [kafkadriver.TopicSource].
func (s source) Committed(ctx context.Context, topic string, partition int32) (int64, string,
	error) {
	at, err := s.c.current.Load().committed(ctx, []kafka.TopicPartition{
		{Topic: &topic, Partition: partition}})
	if err != nil {
		return 0, "", err
	}
	metadata := ""
	if at[0].Metadata != nil {
		metadata = *at[0].Metadata
	}
	return max(int64(at[0].Offset), -1), metadata, nil
}

// Bounds implements [kafkadriver.TopicSource]. It does not use QueryWatermarkOffsets, which returns
// the end of the committed messages.
func (s source) Bounds(ctx context.Context, topic string, partition int32) (oldest, end int64,
	err error) {
	session := s.c.current.Load()
	oldest, err = session.offset(ctx, topic, partition, kafka.EarliestOffsetSpec)
	if err == nil {
		end, err = session.offset(ctx, topic, partition, kafka.LatestOffsetSpec)
	}
	return oldest, end, err
}

// Since implements [kafkadriver.TopicSource].
func (s source) Since(ctx context.Context, topic string, partition int32,
	at time.Time) (int64, error) {
	return s.c.current.Load().offset(ctx, topic, partition,
		kafka.NewOffsetSpecForTimestamp(at.UnixMilli()))
}

func (s *session) offset(ctx context.Context, topic string, partition int32,
	spec kafka.OffsetSpec) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var found kafka.ListOffsetsResult
	at := kafka.TopicPartition{Topic: &topic, Partition: partition}
	err := s.use(func() (err error) {
		found, err = s.admin.ListOffsets(ctx, map[kafka.TopicPartition]kafka.OffsetSpec{at: spec})
		return err
	})
	if err != nil {
		return 0, err
	}
	for of, info := range found.ResultInfos {
		switch {
		case *of.Topic != topic || of.Partition != partition:
		case info.Error.Code() != kafka.ErrNoError:
			return 0, info.Error
		default:
			return int64(info.Offset), nil
		}
	}
	return 0, fmt.Errorf("kafkaconfluent: an offset of %s/%d is not in the brokers' answer", topic,
		partition)
}

// use calls librdkafka, which must not be closed meanwhile.
func (s *session) use(call func() error) error {
	s.using.RLock()
	defer s.using.RUnlock()
	if s.client.IsClosed() {
		return errClosed
	}
	return call()
}

// millis returns the time that ctx has left.
func millis(ctx context.Context) int {
	left := askLimit
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return max(int(left.Milliseconds()), 1)
}

// describeTopics asks the controller. librdkafka waits for the controller that it has last heard
// of, and connects to it without a pause, even when that broker is gone. So after a failure it asks
// for metadata, which any broker has and which name the new controller.
func (s *session) describeTopics(ctx context.Context, topics []string) ([]kafka.TopicDescription,
	error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	first, cancelFirst := context.WithTimeout(ctx, askLimit/5)
	defer cancelFirst()
	found, err := s.askController(first, topics)
	if err == nil || ctx.Err() != nil {
		return found, err
	}
	_ = s.use(func() error {
		_, err := s.client.GetMetadata(nil, false, millis(ctx))
		return err
	})
	return s.askController(ctx, topics)
}

func (s *session) askController(ctx context.Context, topics []string) ([]kafka.TopicDescription,
	error) {
	var found kafka.DescribeTopicsResult
	err := s.use(func() (err error) {
		found, err = s.admin.DescribeTopics(ctx, kafka.NewTopicCollectionOfTopicNames(topics))
		return err
	})
	return found.TopicDescriptions, err
}

// count asks the brokers for the number of a topic's partitions.
func (s *session) count(ctx context.Context, topic string) (int32, error) {
	found, err := s.describeTopics(ctx, []string{topic})
	switch {
	case err != nil:
		return 0, err
	case len(found) != 1:
		return 0, fmt.Errorf("kafkaconfluent: topic %q is not in the brokers' answer", topic)
	case found[0].Error.Code() != kafka.ErrNoError:
		return 0, fmt.Errorf("kafkaconfluent: topic %q: %w", topic, found[0].Error)
	}
	return int32(len(found[0].Partitions)), nil
}

// committed asks for the offsets that the group has committed for partitions.
func (s *session) committed(ctx context.Context, of []kafka.TopicPartition) (
	at []kafka.TopicPartition, err error) {
	err = s.use(func() error {
		at, err = s.client.Committed(of, millis(ctx))
		return err
	})
	if err == nil && len(at) != len(of) {
		err = fmt.Errorf("kafkaconfluent: %d offsets for %d partitions", len(at), len(of))
	}
	for i := 0; err == nil && i < len(at); i++ {
		err = at[i].Error
	}
	return at, err
}
