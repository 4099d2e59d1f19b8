package kafkasarama

import (
	"errors"

	"github.com/IBM/sarama"
)

// topicSource tells which topic a name stands for now, and what a group has committed.
type topicSource interface {
	// Topics describes topics. It must not create one.
	Topics(group string, topics []string) ([]*sarama.TopicMetadata, error)
	// Committed is the group's offset of a partition, -1 for none, and its metadata.
	Committed(group, topic string, partition int32) (offset int64, metadata string, err error)
	// Oldest is the first offset of a partition's log.
	Oldest(topic string, partition int32) (int64, error)
}

// Topics implements topicSource. It asks the coordinator, which is the broker that takes the
// commit: what it knows of a topic is what it will compare the commit with.
func (c realClient) Topics(group string, topics []string) (found []*sarama.TopicMetadata,
	err error) {
	err = c.coordinate(group, func(b *sarama.Broker) error {
		answer, err := b.GetMetadata(sarama.NewMetadataRequest(c.Config().Version, topics))
		if err == nil {
			found = answer.Topics
		}
		return err
	})
	return found, err
}

// Committed implements topicSource.
func (c realClient) Committed(group, topic string, partition int32) (offset int64, metadata string,
	err error) {
	err = c.coordinate(group, func(b *sarama.Broker) error {
		answer, err := b.FetchOffset(sarama.NewOffsetFetchRequest(c.Config().Version, group,
			map[string][]int32{topic: {partition}}))
		if err == nil {
			offset, metadata, err = offsetIn(answer, topic, partition)
		}
		return err
	})
	return offset, metadata, err
}

// Oldest implements topicSource.
func (c realClient) Oldest(topic string, partition int32) (int64, error) {
	// the leader of the topic that was deleted is another
	if err := c.RefreshMetadata(topic); err != nil {
		return 0, err
	}
	return c.GetOffset(topic, partition, sarama.OffsetOldest)
}

// coordinate asks the group's coordinator, which is looked up again after an error.
func (c realClient) coordinate(group string, ask func(*sarama.Broker) error) error {
	broker, err := c.Coordinator(group)
	if err != nil {
		return err
	}
	if err = ask(broker); err == nil {
		return nil
	}
	if answer := sarama.KError(0); !errors.As(err, &answer) {
		_ = broker.Close() // a dead connection stays one; Coordinator opens another
	}
	return errors.Join(err, c.RefreshCoordinator(group))
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
