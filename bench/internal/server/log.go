package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// Log is a topic's contents, to be written before anything is timed.
type Log struct {
	Topic string
	// IDs of the messages of each partition, in order; they stand in the header
	// "message-id".
	IDs [][]string
	// ValueSize of each message, in bytes.
	ValueSize int
	// Keys is among how many Kafka keys the messages of a partition are spread.
	Keys int
}

// Size is the number of messages.
func (l Log) Size() int {
	n := 0
	for _, ids := range l.IDs {
		n += len(ids)
	}
	return n
}

// Write makes the topic and writes the log.
func (b *Broker) Write(l Log) error {
	err := b.admin(func(admin sarama.ClusterAdmin) error {
		return admin.CreateTopic(l.Topic, &sarama.TopicDetail{NumPartitions: int32(len(l.IDs)), ReplicationFactor: 1}, false) //nolint:gosec // a handful
	})
	if err == nil {
		err = b.produce(l)
	}
	if err != nil {
		return fmt.Errorf("server: broker: write %s: %w", l.Topic, err)
	}
	return nil
}

// Remove removes a topic.
func (b *Broker) Remove(topic string) error {
	if err := b.admin(func(admin sarama.ClusterAdmin) error {
		return admin.DeleteTopic(topic)
	}); err != nil {
		return fmt.Errorf("server: broker: delete %s: %w", topic, err)
	}
	return nil
}

func (b *Broker) admin(do func(sarama.ClusterAdmin) error) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(b.Addrs, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

// produce writes in the order of the partitions' offsets, one message of each in turn, and waits
// until all is there.
func (b *Broker) produce(l Log) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Flush.MaxMessages, cfg.Producer.Flush.Messages = 2000, 1000
	cfg.Producer.Flush.Frequency = 5 * time.Millisecond // what is fewer than Messages goes then
	cfg.Net.MaxOpenRequests = 1                         // in order
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	p, err := sarama.NewSyncProducer(b.Addrs, cfg)
	if err != nil {
		return err
	}
	value := make([]byte, l.ValueSize)
	for i := range value {
		value[i] = 'a' + byte(i%26)
	}
	const atOnce = 20_000
	var messages []*sarama.ProducerMessage
	for i, left := 0, l.Size(); left > 0 && err == nil; i++ {
		for partition, ids := range l.IDs {
			if i < len(ids) {
				left--
				messages = append(messages, &sarama.ProducerMessage{
					Topic: l.Topic, Partition: int32(partition), //nolint:gosec // a handful
					Key: sarama.StringEncoder(fmt.Sprintf("account-%d-%d", partition,
						i%l.Keys)),
					Value: sarama.ByteEncoder(value),
					Headers: []sarama.RecordHeader{{Key: []byte("message-id"),
						Value: []byte(ids[i])}},
				})
			}
		}
		if len(messages) >= atOnce || left == 0 {
			err, messages = p.SendMessages(messages), nil
		}
	}
	return errors.Join(err, p.Close())
}
