package franz

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

var (
	// ErrNoID: the message carries no id.
	ErrNoID = partition.ErrNoID
	// ErrAttempts: the message has been tried Config.MaxAttempts times.
	ErrAttempts = partition.ErrAttempts
	// ErrBusy: the message was in flight elsewhere for longer than Config.BusyTimeout.
	ErrBusy = partition.ErrBusy
	// ErrFenced: the group has given the partitions of this member away. It is the cause of
	// the contexts that end for it.
	ErrFenced = partition.ErrFenced
	// ErrRunning: the Consumer's Run has not returned yet.
	ErrRunning = errors.New("franz: Run is running already")
)

// UnprocessableError stops a consumer: the message can neither be processed nor be put aside,
// because there is no Config.Park or it is not to be given such a message. Its offset is not
// committed.
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
	if errors.Is(e.Err, partition.ErrFirstNoIDs) {
		return fmt.Sprintf("franz: message %s/%d@%d cannot be processed: %v", e.Topic, e.Partition,
			e.Offset, e.Err)
	}
	return fmt.Sprintf("franz: message %s/%d@%d cannot be processed and there is no Config.Park: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }

// RetryAfter makes an error of a handler say when the message is to be handled again: not
// before d has passed, in place of the backoff. Its key waits for that long, others do
// not. A d below zero counts as zero. It is nil for a nil err.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{max(d, 0), err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter is what the partition looks for.
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }

// isFatal tells what must stop the consumer from what joining the group again may mend.
func isFatal(err error) bool {
	var message *UnprocessableError
	return errors.As(err, &message) || errors.Is(err, dedup.ErrClosed) ||
		errors.Is(err, flow.ErrNoVerdict) ||
		errors.Is(err, partition.ErrRefused) ||
		// whoever has the id now would be fenced by us, and so on
		errors.Is(err, kerr.FencedInstanceID)
}

// isFencing tells that the partitions of whoever gets this answer to a commit are somebody
// else's. STALE_MEMBER_EPOCH is not among them: a KIP-848 coordinator counts the epoch up
// before the member hears of it, and a member that it has given up is unknown to it.
func isFencing(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.FencedMemberEpoch)
}
