package queue

import (
	"errors"
	"fmt"
)

var (
	// ErrNoID: the message has no id.
	ErrNoID = errors.New("queue: message has no id: have the producer send one, or tell the adapter where it is")
	// ErrAttempts: the message was tried Attempts.Max times.
	ErrAttempts = errors.New("queue: attempts are used up")
)

var (
	errDrained   = errors.New("queue: not finished when the drain ended")
	errCancelled = errors.New("queue: handler was canceled")
	errUndecided = errors.New("queue: handler ended its goroutine")
	errBehind    = errors.New("queue: a message of the same key before it is not done")
	errFirstNoID = fmt.Errorf("%w (none of the first messages has one: see Config.AllowNoID)", ErrNoID)
)

// UnprocessableError stops a consumer: the message cannot be processed, and cannot be parked
// because there is no Park. The message is not acknowledged.
type UnprocessableError struct {
	// Scope and ID of the message.
	Scope, ID string
	// Err is why it cannot be processed.
	Err error
}

// Error implements error.
func (e *UnprocessableError) Error() string {
	return fmt.Sprintf("queue: message %q of %q cannot be processed: %v", e.ID, e.Scope, e.Err)
}

// Unwrap returns Err.
func (e *UnprocessableError) Unwrap() error { return e.Err }
