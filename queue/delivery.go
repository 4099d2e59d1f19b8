package queue

import (
	"context"
	"time"
)

// Delivery is one delivery of a message by a broker that acknowledges single messages. An adapter
// makes it from the client's message. Ack and Nack are required. All of its functions are called
// with a context that ends after some seconds. Two of them are never called at the same time,
// except Extend while Park runs.
type Delivery struct {
	// ID names the operation: the same for every delivery and every copy of the message. It must
	// come from the message, and it has 1-255 bytes of printable UTF-8.
	ID string
	// Scope separates queues and consumers that use the same ids, such as "ORDERS/billing".
	// Config.Scope overrides it. 0-255 bytes of printable UTF-8.
	Scope string
	// Key sets the order: messages of one key are handled one by one, in the order in which they
	// came. Set it only if the broker keeps the order of a key, too. Empty: the message waits for
	// no other.
	Key string
	// Payload is the message's body. Do not change it.
	Payload []byte
	// Deliveries is how often the broker says that it has delivered the message, this time
	// included. 0: it does not say.
	Deliveries int
	// Attempt counts the claims of the ID, from 1, and is set before the handler runs. With
	// Config.Unclaimed it is Deliveries.
	Attempt int
	// Raw is the client's own message.
	Raw any

	// Ack says that the message is done. nil means that the broker has the acknowledgement, as far
	// as it confirms that. A lost Ack costs one more delivery, which is skipped.
	Ack func(ctx context.Context) error
	// Nack asks for the message again, after the given time if the broker can wait.
	Nack func(ctx context.Context, after time.Duration) error
	// Extend tells the broker that the message is still being worked on. It is called once in each
	// Every until the message is acknowledged. nil: the broker has no such time limit, or its
	// client extends the time by itself.
	Extend func(ctx context.Context) error
	// Every is the time between two calls of Extend: use a quarter of the broker's time limit.
	Every time.Duration
	// Park keeps a message that cannot be processed, such as in a dead-letter queue, with the
	// reason. After it has returned nil, the message is acknowledged. After a crash it may get a
	// message again. Extend may be called meanwhile. nil: see Config.Park.
	Park func(ctx context.Context, reason error) error
}

// Source is what [Consumer.Run] gets deliveries from. An adapter has one for each consumer of a
// queue. One goroutine calls it.
type Source interface {
	// Fetch returns at most limit deliveries, and waits for the first one until ctx ends. It may
	// return none, and no error, when it has waited for a while. After an error Run calls it again,
	// with a backoff. If [dedup.IsPermanent] is true of the error, Run returns it instead.
	Fetch(ctx context.Context, limit int) ([]*Delivery, error)
}

// Handler performs the effect of one message. Its context ends with Attempts.Timeout, with the loss
// of the claim (cause [dedup.ErrLeaseLost]), and when Config.Drain is used up; [dedup.FromContext]
// returns its attempt.
//
// It returns nil when the effect has happened: the message is recorded, then acknowledged. Return
// the context's error if the context ended before the effect. With an error for which
// [dedup.IsPermanent] is true, the message is parked. An error returned after the context has ended
// is never permanent. After any other error, and after a panic, the claim is released and the
// message is delivered again after a backoff, or after the time of [RetryAfter], up to Attempts.Max
// times.
type Handler func(ctx context.Context, d *Delivery) error

// RetryAfter wraps the error of a handler so that the message is delivered again when the time
// after has passed, instead of the backoff, as far as the broker can wait. An after below zero
// counts as zero. RetryAfter returns nil for a nil err.
func RetryAfter(after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{max(after, 0), err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string             { return e.err.Error() }
func (e *retryAfterError) Unwrap() error             { return e.err }
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }
