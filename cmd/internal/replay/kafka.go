package replay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// maxMessage leaves the size of a message to the brokers: what came from a topic should
// fit into it again.
const maxMessage = 64 << 20

// kafkaConfig is that of all connections to Kafka.
func kafkaConfig(o Options) (*sarama.Config, error) {
	c, err := o.Kafka.Config("onceward-replay")
	if err != nil {
		return nil, err
	}
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.MaxMessageBytes = maxMessage
	c.Producer.Partitioner = newHomePartitioner
	return c, kafkasarama.CheckProducer(c)
}

// homePartitioner sends a message to the partition it came from, where what is left of its
// key still goes, whoever's hash chose it; and by its key when there is no such partition.
type homePartitioner struct{ hash sarama.Partitioner }

func newHomePartitioner(topic string) sarama.Partitioner {
	return homePartitioner{sarama.NewHashPartitioner(topic)}
}

// Partition implements sarama.Partitioner.
func (p homePartitioner) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	for _, h := range m.Headers {
		if string(h.Key) != kafkaadapter.HeaderPartition {
			continue
		}
		if home, err := strconv.ParseInt(string(h.Value), 10, 32); err == nil && home >= 0 &&
			home < int64(n) {
			return int32(home), nil // below n
		}
	}
	return p.hash.Partition(m, n)
}

// RequiresConsistency implements sarama.Partitioner: a partition that is down is waited for.
func (p homePartitioner) RequiresConsistency() bool { return true }

// kafka are the connections to Kafka.
type kafka struct {
	client   sarama.Client
	admin    sarama.ClusterAdmin
	consumer sarama.Consumer
	sync     sarama.SyncProducer   // nil in a dry run, like
	producer kafkaadapter.Producer // that of it
}

// openKafka connects.
func openKafka(ctx context.Context, o Options) (*kafka, error) {
	c, err := kafkaConfig(o)
	if err != nil {
		return nil, err
	}
	type answer struct {
		k   *kafka
		err error
	}
	answers := make(chan answer, 1)
	go func() { // sarama heeds no context: what nobody waits for any more ends by its own timeouts
		k, err := dial(o.Kafka.Brokers, c, o.DryRun)
		if k != nil && ctx.Err() != nil {
			k.close()
		}
		answers <- answer{k, err}
	}()
	select {
	case <-ctx.Done():
		return nil, notAsked(ctx.Err(), o)
	case a := <-answers:
		if a.err != nil {
			return nil, notAsked(a.err, o)
		}
		return a.k, nil
	}
}

// notAsked names the flag, and who has not answered.
func notAsked(err error, o Options) error {
	return fmt.Errorf("--brokers: %w", server.Unanswered(err, o.Kafka.Brokers...))
}

func dial(brokers []string, c *sarama.Config, dryRun bool) (_ *kafka, err error) {
	k := &kafka{}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if k.client, err = sarama.NewClient(brokers, c); err != nil {
		return nil, err
	}
	if k.admin, err = sarama.NewClusterAdminFromClient(k.client); err != nil {
		return nil, err
	}
	if k.consumer, err = sarama.NewConsumerFromClient(k.client); err != nil {
		return nil, err
	}
	if dryRun {
		return k, nil
	}
	if k.sync, err = sarama.NewSyncProducerFromClient(k.client); err != nil {
		return nil, err
	}
	k.producer, err = kafkasarama.Producer(k.sync)
	return k, err
}

// close ends the connections: everything that was sent has been answered.
func (k *kafka) close() {
	if k.sync != nil {
		_ = k.sync.Close()
	}
	if k.consumer != nil {
		_ = k.consumer.Close()
	}
	if k.client != nil {
		_ = k.client.Close() // the admin's, too
	}
}

// hasTopic asks whether a message can be sent there at all.
func (k *kafka) hasTopic(topic string) (bool, error) {
	partitions, err := k.client.Partitions(topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrInvalidTopic) {
		return false, nil
	}
	return len(partitions) > 0, err
}
