package broker

import (
	"cmp"
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

// Write makes the topic and writes the log.
func (b *Broker) Write(l Log) (err error) {
	admin, err := b.admin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	detail := &sarama.TopicDetail{NumPartitions: int32(len(l.IDs)), ReplicationFactor: 1} //nolint:gosec // a handful
	if err := admin.CreateTopic(l.Topic, detail, false); err != nil {
		return fmt.Errorf("broker: create %s: %w", l.Topic, err)
	}
	return b.produce(l)
}

// Remove removes a topic.
func (b *Broker) Remove(topic string) (err error) {
	admin, err := b.admin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	if err := admin.DeleteTopic(topic); err != nil {
		return fmt.Errorf("broker: delete %s: %w", topic, err)
	}
	return nil
}

// produce writes partition by partition, in order, and waits until all is there.
func (b *Broker) produce(l Log) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Flush.MaxMessages, cfg.Producer.Flush.Messages = 2000, 1000
	cfg.Producer.Flush.Frequency = 5 * time.Millisecond // what is fewer than Messages goes then
	cfg.Net.MaxOpenRequests = 1                         // in order
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	p, err := sarama.NewAsyncProducer(b.Addrs, cfg)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	go l.send(p)
	var failed error // the first: the others are mostly the same
	for range l.Size() {
		select {
		case <-p.Successes():
		case e := <-p.Errors():
			failed = cmp.Or(failed, error(e))
		}
	}
	if err := errors.Join(failed, p.Close()); err != nil {
		return fmt.Errorf("broker: write %s: %w", l.Topic, err)
	}
	return nil
}

// Size is the number of messages.
func (l Log) Size() int {
	n := 0
	for _, ids := range l.IDs {
		n += len(ids)
	}
	return n
}

// send sends the log in the order of its partitions' offsets, one message of each in turn.
func (l Log) send(p sarama.AsyncProducer) {
	value := make([]byte, l.ValueSize)
	for i := range value {
		value[i] = 'a' + byte(i%26)
	}
	for i, left := 0, l.Size(); left > 0; i++ {
		for partition, ids := range l.IDs {
			if i >= len(ids) {
				continue
			}
			left--
			p.Input() <- &sarama.ProducerMessage{
				Topic: l.Topic, Partition: int32(partition), //nolint:gosec // a handful
				Key:     sarama.StringEncoder(fmt.Sprintf("account-%d-%d", partition, i%l.Keys)),
				Value:   sarama.ByteEncoder(value),
				Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(ids[i])}},
			}
		}
	}
}
