package txn

import (
	"time"

	"github.com/IBM/sarama"
)

// Observer has hooks that are called with what a [Processor] does. Every hook may be nil, is called
// concurrently, and must return quickly.
type Observer struct {
	// Handled: the handler ran on a batch for the time took and returned err. The batch may run
	// again.
	Handled func(batch []*sarama.ConsumerMessage, took time.Duration, err error)
	// Committed: a transaction with the outputs of a batch is committed; next is the
	// committed offset of the partition.
	Committed func(topic string, partition int32, next int64, outputs int)
	// Failed: a run was not committed for this reason. Its transaction, if there was one, is
	// aborted, or the broker decides its outcome and txn asks for it. The batch runs again unless
	// the broker says that it was committed.
	Failed func(topic string, partition int32, err error)
	// Resumed: a new producer has taken over the partition, which is committed up to the offset
	// next, or -1. It is called once for each claim, and again after errors that need a new
	// producer.
	Resumed func(topic string, partition int32, next int64)
	// DeadLettered: the dead letter of m is committed together with its offset.
	DeadLettered func(m *sarama.ConsumerMessage, reason error)
	// Paused: the partition is paused (true) or resumed.
	Paused func(topic string, partition int32, paused bool)
	// Revoked: a partition was given up; abandoned says that a handler or a request to a
	// broker was still going on when Drain was over.
	Revoked func(topic string, partition int32, abandoned bool)
	// GroupError: the consumer group reported err.
	GroupError func(err error)
}
