package kafkaadapter

import "time"

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
