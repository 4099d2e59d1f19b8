package txn

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

var (
	// ErrRunning: the Processor's Run has not returned yet.
	ErrRunning = errors.New("txn: Run is running already")
	// ErrRevoked is the cause of a handler's context that ended because its partition was
	// given up and the drain budget is used up.
	ErrRevoked = errors.New("txn: the partition was revoked")
	// ErrStale ends a claim whose member or generation the group no longer knows, or never knew:
	// Config.Group and Config.InstanceID must be those of the consumer group. Run joins again.
	ErrStale = errors.New(
		"txn: not a current member of the group (is Config.Group the group that Run consumes with?)")

	errHandlerExited = errors.New("txn: the handler ended its goroutine")
)

// UnprocessableError stops a consumer: the message can neither be processed nor be sent to
// a dead-letter topic. Its offset is not committed.
type UnprocessableError struct {
	// Topic of the message.
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
	return fmt.Sprintf("txn: message %s/%d@%d cannot be processed: %v", e.Topic, e.Partition,
		e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }

func unprocessable(m *sarama.ConsumerMessage, err error) error {
	return &UnprocessableError{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Err: err}
}
