package txn

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// ErrTopicRecreated ends a claim whose topic was deleted and created again. The handler's last
// batch is not committed, and the new topic is read from Consumer.Offsets.Initial on. Run joins
// again.
var ErrTopicRecreated = errors.New("txn: topic was deleted and created again")

func (w *worker) recreated(how string) error {
	return &endError{fmt.Errorf("%w: %q: %s", ErrTopicRecreated, w.topic, how)}
}

// sameTopic compares the topic with the one that was assigned, right before a commit. A commit
// identifies its topic by name alone: the offset of a deleted topic would be committed into the new
// one, and that many of its messages would be skipped. The check and the commit are two requests.
// If the topic is replaced between them, the stamp shows it later, see begins. Brokers before 2.8
// do not tell such topics apart.
func (w *worker) sameTopic() error {
	uuid, err := w.broker.topic(w.topic)
	switch {
	case err != nil:
		return fmt.Errorf("txn: topic: %w", err)
	case uuid != "" && w.uuid != "" && uuid != w.uuid:
		return w.recreated(fmt.Sprintf("its UUID was %s and is %s", w.uuid, uuid))
	}
	return nil
}

// begins compares the committed offset with the topic, and with the offset at which sarama has
// begun the partition. sarama fetched that offset before the topic was looked up:
//
//  1. sarama fetches the offset 200 of the old topic.
//  2. The topic is deleted, and its offset with it; another one is created.
//  3. The partition begins at 200 of the new topic.
func (w *worker) begins(p producer, next int64, metadata string) error {
	stamped := msgid.Stamped(metadata)
	switch {
	case next >= 0 && stamped != "" && w.uuid != "" && stamped != w.uuid:
		if err := w.restart(p); err != nil {
			return fmt.Errorf("txn: the start of topic %q cannot be committed: %w", w.topic, err)
		}
		return w.recreated(fmt.Sprintf("the offset %d was committed for UUID %s", next, stamped))
	case w.initial >= 0 && next < w.initial:
		return w.recreated(fmt.Sprintf("partition %d begins at %d, committed is %d", w.partition,
			w.initial, next))
	}
	return nil
}

// restart commits the first offset of the topic's log, at which the next session begins.
func (w *worker) restart(p producer) error {
	oldest, err := w.broker.oldest(w.topic, w.partition)
	if err != nil {
		return err
	}
	if err := p.BeginTxn(); err != nil {
		return err
	}
	meta := w.meta()
	if w.over.Load() {
		return ErrRevoked // closing the producer leaves the transaction to its successor
	}
	if err := p.AddOffsetsToTxnWithGroupMetadata(w.offsets(oldest), meta); err != nil {
		return err
	}
	return p.CommitTxn()
}

// offsets returns what a transaction commits: the offset, and the topic to which it belongs. A
// leader epoch of 0, which sarama's AddMessageToTxn sends, would make other clients conclude that
// the log was truncated; -1 stands for no epoch.
func (w *worker) offsets(next int64) map[string][]*sarama.PartitionOffsetMetadata {
	stamp := msgid.Stamp(w.uuid)
	return map[string][]*sarama.PartitionOffsetMetadata{
		w.topic: {{Partition: w.partition, Offset: next, LeaderEpoch: -1, Metadata: &stamp}},
	}
}

// topic asks the group's coordinator, because that broker takes the offsets.
func (c *cluster) topic(name string) (uuid string, err error) {
	err = c.ask(func(b *sarama.Broker) error {
		answer, err := b.GetMetadata(sarama.NewMetadataRequest(c.client.Config().Version,
			[]string{name}))
		switch {
		case err != nil:
			return err
		case len(answer.Topics) != 1:
			return sarama.ErrIncompleteResponse
		case answer.Topics[0].Err == sarama.ErrUnknownTopicOrPartition:
			return answer.Topics[0].Err
		case answer.Topics[0].Uuid != sarama.Uuid{}:
			uuid = answer.Topics[0].Uuid.String()
		}
		return nil
	})
	return uuid, err
}

func (c *cluster) oldest(topic string, partition int32) (int64, error) {
	if err := c.client.RefreshMetadata(topic); err != nil { // its leader may be another one
		return 0, err
	}
	return c.client.GetOffset(topic, partition, sarama.OffsetOldest)
}
