package kafkasarama

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Topics implements [kafkadriver.TopicSource]. It asks the coordinator, because that broker takes
// the commit and compares it with the topics that it knows.
func (c realClient) Topics(_ context.Context,
	topics []string) (found map[string]kafkadriver.TopicState, err error) {
	err = c.coordinate(func(b *sarama.Broker) error {
		answer, err := b.GetMetadata(sarama.NewMetadataRequest(c.Config().Version, topics))
		if err == nil {
			found = statesOf(answer.Topics)
		}
		return err
	})
	return found, err
}

// statesOf returns which topics the names stand for. A name that the answer does not report is left
// out.
func statesOf(answers []*sarama.TopicMetadata) map[string]kafkadriver.TopicState {
	found := make(map[string]kafkadriver.TopicState, len(answers))
	for _, answer := range answers {
		switch {
		case answer.Err == sarama.ErrUnknownTopicOrPartition:
			found[answer.Name] = kafkadriver.TopicState{Absent: answer.Err}
		case answer.Uuid != sarama.Uuid{}:
			found[answer.Name] = kafkadriver.TopicState{UUID: answer.Uuid.String()}
		case answer.Err == sarama.ErrNoError:
			found[answer.Name] = kafkadriver.TopicState{}
		}
	}
	return found
}

// Committed implements [kafkadriver.TopicSource].
func (c realClient) Committed(_ context.Context, topic string, partition int32) (offset int64,
	metadata string, err error) {
	err = c.coordinate(func(b *sarama.Broker) error {
		answer, err := b.FetchOffset(sarama.NewOffsetFetchRequest(c.Config().Version, c.group,
			map[string][]int32{topic: {partition}}))
		if err == nil {
			offset, metadata, err = offsetIn(answer, topic, partition)
		}
		return err
	})
	return offset, metadata, err
}

// Bounds implements [kafkadriver.TopicSource].
func (c realClient) Bounds(_ context.Context, topic string, partition int32) (oldest, end int64,
	err error) {
	// The new topic may have another leader than the deleted one.
	if err = c.RefreshMetadata(topic); err == nil {
		oldest, err = c.GetOffset(topic, partition, sarama.OffsetOldest)
	}
	if err == nil {
		end, err = c.GetOffset(topic, partition, sarama.OffsetNewest)
	}
	return oldest, end, err
}

// Since implements [kafkadriver.TopicSource].
func (c realClient) Since(_ context.Context, topic string, partition int32,
	at time.Time) (int64, error) {
	return c.GetOffset(topic, partition, at.UnixMilli())
}

// failed gets the group's errors. sarama does not begin a partition at an offset that is out of
// range, and reports it here.
func (c *Consumer) failed(err error) {
	var of *sarama.ConsumerError
	if errors.As(err, &of) && errors.Is(of.Err, sarama.ErrOffsetOutOfRange) {
		c.topics.OutOfRange(of.Topic, of.Partition)
	}
	c.stopFenced(fencedBy(err))
	c.engine.GroupError(err)
}

// coordinate asks the group's coordinator. After an error it looks the coordinator up again.
func (c realClient) coordinate(ask func(*sarama.Broker) error) error {
	broker, err := c.Coordinator(c.group)
	if err != nil {
		return err
	}
	if err = ask(broker); err == nil {
		return nil
	}
	if answer := sarama.KError(0); !errors.As(err, &answer) {
		_ = broker.Close() // a dead connection stays dead; Coordinator opens another
	}
	return errors.Join(err, c.RefreshCoordinator(c.group))
}

func offsetIn(answer *sarama.OffsetFetchResponse, topic string, partition int32) (int64,
	string, error) {
	if err := answer.GroupError(); err != sarama.ErrNoError && err != sarama.ErrGroupIDNotFound {
		return 0, "", err
	}
	block := answer.GetBlock(topic, partition)
	switch {
	case block == nil:
		return -1, "", nil
	case block.Err != sarama.ErrNoError:
		return 0, "", block.Err
	}
	return block.Offset, block.Metadata, nil
}
