package server

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/bench/internal/must"
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
func (b *Broker) Write(l Log) {
	must.Do(b.admin(func(admin sarama.ClusterAdmin) error {
		return admin.CreateTopic(l.Topic, &sarama.TopicDetail{
			NumPartitions: int32(len(l.IDs)), ReplicationFactor: 1}, false) //nolint:gosec // a handful
	}))
	b.produce(l)
}

// Remove removes a topic.
func (b *Broker) Remove(topic string) error {
	return b.admin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) })
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

// Producer is a client that writes in order and to the partition that a message names.
func (b *Broker) Producer(batch time.Duration) sarama.SyncProducer {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	if batch > 0 { // what is fewer than Messages goes then
		cfg.Producer.Flush.MaxMessages, cfg.Producer.Flush.Messages = 2000, 1000
		cfg.Producer.Flush.Frequency = batch
	}
	cfg.Net.MaxOpenRequests = 1 // in order
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	return must.Get(sarama.NewSyncProducer(b.Addrs, cfg))
}

// Message is the n-th of a partition.
func (l Log) Message(partition, n int) *sarama.ProducerMessage {
	value := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz"), l.ValueSize/26+1)[:l.ValueSize]
	return &sarama.ProducerMessage{
		Topic: l.Topic, Partition: int32(partition), //nolint:gosec // a handful
		Key:   sarama.StringEncoder(fmt.Sprintf("account-%d-%d", partition, n%l.Keys)),
		Value: sarama.ByteEncoder(value),
		Headers: []sarama.RecordHeader{{Key: []byte("message-id"),
			Value: []byte(l.IDs[partition][n])}},
	}
}

// produce writes in the order of the partitions' offsets, one message of each in turn, and waits
// until all is there.
func (b *Broker) produce(l Log) {
	p := b.Producer(5 * time.Millisecond)
	defer func() { must.Do(p.Close()) }()
	const atOnce = 20_000
	var messages []*sarama.ProducerMessage
	for n, left := 0, l.Size(); left > 0; n++ {
		for partition, ids := range l.IDs {
			if n < len(ids) {
				left--
				messages = append(messages, l.Message(partition, n))
			}
		}
		if len(messages) >= atOnce || left == 0 {
			must.Do(p.SendMessages(messages))
			messages = nil
		}
	}
}
