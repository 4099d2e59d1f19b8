package kafkaadapter

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNoID: the message has no id.
	ErrNoID = errors.New("kafkaadapter: message has no id: set Config.ID to where it is, or Config.Positions to tell messages by their positions")
	// ErrAttempts: the message was tried Attempts.Max times.
	ErrAttempts = errors.New("kafkaadapter: attempts are used up")
	// ErrBusy: the message was in flight elsewhere for longer than Attempts.BusyTimeout.
	ErrBusy = errors.New("kafkaadapter: in flight elsewhere for too long")
	// ErrFenced: the group's coordinator no longer accepts this member's commits, so its partitions
	// belong to another member. Contexts that end for this reason have it as their cause, together
	// with the coordinator's answer.
	ErrFenced = errors.New("kafkaadapter: the group has fenced this member off")
	// ErrRunning: the consumer's Run has not returned yet.
	ErrRunning = errors.New("kafkaadapter: Run is running already")
	// ErrTopicRecreated is passed to Observer.GroupError when a topic was deleted, or deleted and
	// created again, under a running consumer. Nothing more is committed for it, and the new topic
	// is read from its start.
	ErrTopicRecreated = errors.New("kafkaadapter: topic was deleted and created again")
	// ErrLogCut is passed to Observer.GroupError when a partition's log ends before the group's
	// offset, as after an unclean election: new messages have offsets that were committed before.
	// The partition is read again from the first message within the Deduper's window, or from its
	// start if there is no Deduper. kafkafranz needs no such error: its client sees where the log
	// was cut.
	ErrLogCut = errors.New("kafkaadapter: log was cut below the committed offset")
	// ErrTooLarge is the error of a [Producer] for a message that is too large for the topic.
	ErrTooLarge = errors.New("kafkaadapter: message is too large")
)

// UnprocessableError stops a consumer: the message can neither be processed nor put aside, because
// there is no Config.Park, or Park must not get such a message. Its offset is not committed.
type UnprocessableError struct {
	// Topic, Partition and Offset are the position of the message.
	Topic     string
	Partition int32
	Offset    int64
	// Err is why it cannot be processed.
	Err error
}

// Error implements error.
func (e *UnprocessableError) Error() string {
	return fmt.Sprintf("kafkaadapter: message %s/%d@%d cannot be processed: %v", e.Topic, e.Partition,
		e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }

// RetryAfter returns an error with which a handler says when the message is handled again: after d,
// instead of the backoff. Messages of the same key wait for that long, others do not. A d below
// zero counts as zero. A nil err returns nil.
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

// RetryAfter is the method that the partition looks for.
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }
