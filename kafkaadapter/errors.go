package kafkaadapter

import (
	"errors"
	"fmt"

	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

var (
	// ErrNoID: the message carries no id.
	ErrNoID = partition.ErrNoID
	// ErrAttempts: the message has been tried Config.MaxAttempts times.
	ErrAttempts = partition.ErrAttempts
	// ErrBusy: the message was in flight elsewhere for longer than Config.BusyTimeout.
	ErrBusy = partition.ErrBusy
	// ErrRunning: the Adapter's Run has not returned yet.
	ErrRunning = errors.New("kafkaadapter: Run is running already")
)

// UnprocessableError stops a consumer: the message can neither be processed nor be put aside,
// because there is no Config.Park or it is not to be given such a message. Its offset is not
// committed.
type UnprocessableError struct {
	// Topic, Partition and Offset of the message.
	Topic string
	// Partition of the message.
	Partition int32
	// Offset of the message.
	Offset int64
	// Err is why it cannot be processed.
	Err error
}

// Error implements error.
func (e *UnprocessableError) Error() string {
	if errors.Is(e.Err, partition.ErrFirstNoIDs) {
		return fmt.Sprintf("kafkaadapter: message %s/%d@%d cannot be processed: %v", e.Topic,
			e.Partition, e.Offset, e.Err)
	}
	return fmt.Sprintf("kafkaadapter: message %s/%d@%d cannot be processed and there is no Config.Park: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }
