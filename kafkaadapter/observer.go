package kafkaadapter

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup/driver"
)

// Observer is told what an [Adapter] does. Every hook may be nil, is called
// concurrently, and must return quickly.
type Observer struct {
	// Delivered: a message came from the broker, before anything else is done with it.
	Delivered func(m *sarama.ConsumerMessage)
	// MissingID: Config.ID found no id in the message. What becomes of it is up to
	// Config.Positions and Config.Park.
	MissingID func(m *sarama.ConsumerMessage)
	// Skipped: the message is done already, since age; cause tells why it came again.
	Skipped func(m *Message, cause driver.Cause, age time.Duration)
	// Handled: the handler ran for took and returned err.
	Handled func(m *Message, took time.Duration, err error)
	// Waiting: the message is in flight elsewhere, and asked for again later.
	Waiting func(m *Message)
	// Recorded: the effect of the message is on record, took after its handler had returned.
	Recorded func(m *Message, took time.Duration)
	// Unrecorded: the handler has returned nil, and its record could not be confirmed before
	// the claim was lost: the effect may happen again. A claim that is lost while the handler
	// runs is told by the Deduper's Observer.
	Unrecorded func(m *Message, err error)
	// Parked: Config.Park has kept the message, for this reason.
	Parked func(m *Message, reason error)
	// Committing: offset is the next to read of a partition, as it is being committed.
	Committing func(topic string, partition int32, offset int64)
	// Committed: the group's coordinator has this offset. Told with Config.CommitClient
	// alone, like CommitFailed.
	Committed func(topic string, partition int32, offset int64)
	// CommitFailed: an attempt to commit was refused, with a sarama.KError, or failed on
	// its way; it is repeated. ErrRequestTimedOut may have been applied.
	CommitFailed func(topic string, partition int32, err error)
	// Revoked: a partition was given up. Returned messages were not started, or not
	// finished in time, and their claims were released; abandoned handlers still run,
	// under their own lease.
	Revoked func(topic string, partition int32, returned, abandoned int)
	// Paused: the partition is paused (true) or resumed. It must not call Adapter.Progress.
	Paused func(topic string, partition int32, paused bool)
	// GroupError: the consumer group reported err.
	GroupError func(err error)
}
