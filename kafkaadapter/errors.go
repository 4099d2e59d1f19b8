package kafkaadapter

import (
	"errors"
	"fmt"

	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

var (
	// ErrNoID: the message carries no id.
	ErrNoID = errors.New("kafkaadapter: message has no id")
	// ErrAttempts: the message has been tried Config.MaxAttempts times.
	ErrAttempts = partition.ErrAttempts
	// ErrBusy: the message was in flight elsewhere for longer than Config.BusyTimeout.
	ErrBusy = partition.ErrBusy
	// ErrRunning: the Adapter's Run has not returned yet.
	ErrRunning = errors.New("kafkaadapter: Run is running already")
)

// UnprocessableError stops a consumer: the message can neither be processed nor, with
// no Config.Park, be put aside. Its offset is not committed.
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
	return fmt.Sprintf("kafkaadapter: message %s/%d@%d cannot be processed and there is no Config.Park: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }
