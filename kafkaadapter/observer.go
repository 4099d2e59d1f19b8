package kafkaadapter

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Observer has hooks that are called with what a consumer does. Every hook may be nil, is called
// concurrently, and must return quickly.
type Observer struct {
	// Delivered: a message came from the broker. ID, Scope and Attempt are not known yet.
	Delivered func(m *Message)
	// MissingID: Config.ID found no id in the message.
	MissingID func(m *Message)
	// Skipped: the message was done before, the time age ago; cause says why it was sent again.
	Skipped func(m *Message, cause driver.Cause, age time.Duration)
	// Handled: the handler ran for the time took and returned err.
	Handled func(m *Message, took time.Duration, err error)
	// Waiting: the message is in flight elsewhere; the consumer will claim it again later.
	Waiting func(m *Message)
	// Recorded: the effect of the message is on record; took is the time since its handler
	// returned.
	Recorded func(m *Message, took time.Duration)
	// Unrecorded: the handler returned nil, and the claim was lost before the record could be
	// confirmed: the effect may happen again. A claim that is lost while the handler runs is
	// reported by the Deduper's Observer.
	Unrecorded func(m *Message, err error)
	// Parked: Config.Park has kept the message, for this reason.
	Parked func(m *Message, reason error)
	// Delayed: the message has failed, and a topic of Attempts.Delayed has it.
	Delayed func(m *Message, topic string, err error)
	// PassedOver: a wrapped handler marked a later message but not this one, and this one was
	// recorded with it; see kafkasarama.Wrap.
	PassedOver func(m *Message)
	// Committing: the offset is being committed; it is the next one to read of the partition.
	Committing func(topic string, partition int32, offset int64)
	// Committed: the group's coordinator has this offset.
	Committed func(topic string, partition int32, offset int64)
	// CommitFailed: the coordinator refused a commit, or the commit failed on its way; err is the
	// client's. The commit is repeated. After a timeout it may have been applied.
	CommitFailed func(topic string, partition int32, err error)
	// AckRefused: acknowledgements to a share group did not count, most likely because the locks
	// had ended. The messages are redelivered, and skipped if their records say that they are done.
	AckRefused func(topic string, partition int32, err error)
	// Assigned: this member has the partition, under this generation, or member epoch, of the
	// group.
	Assigned func(topic string, partition, generation int32)
	// Revoked: a partition was given up. Returned messages were not started, or not finished in
	// time, and their claims were released. Abandoned handlers still run, under their own leases.
	Revoked func(topic string, partition int32, returned, abandoned int)
	// Paused: the partition is paused (true) or resumed. It must not call Progress.
	Paused func(topic string, partition int32, paused bool)
	// GroupError: the client reported err, of the group or of a partition.
	GroupError func(err error)
}
