package txn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/IBM/sarama"
)

// Handler turns a batch of messages of one partition, in the order of their offsets, into the
// messages to produce; it may return none. It must have no other effect: it runs again for the same
// messages after an abort, a rebalance or a crash, and only the output of one run counts. It is
// called concurrently for different partitions, but not for one partition. The exception is a call
// that outlived its partition's Drain: it may still run when the partition has come back, but its
// output is dropped.
//
// Its context ends with Config.Timeout, and when the drain budget of a revoked partition is used up
// (cause [ErrRevoked]). Messages that it returns after that are dropped, and the batch is handled
// again. Returned messages are sent in order. They belong to txn then: return new ones in each run.
//
// After an error for which [dedup.IsPermanent] is true, the batch is divided until the message is
// alone, which goes to Config.DeadLetter or stops Run. The same happens to a message whose output
// no broker takes, because it is too large for example. After any other error, and after a panic,
// the batch is handled again after a backoff. Nothing is skipped, and later messages of the
// partition wait.
type Handler func(ctx context.Context,
	batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error)

// PerMessage makes a [Handler] of a function for one message. The messages of a batch
// still share a transaction; the first error ends the run.
func PerMessage(f func(ctx context.Context, m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage,
	error)) Handler {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage,
		error) {
		var all []*sarama.ProducerMessage
		for _, m := range batch {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			out, err := f(ctx, m)
			if err != nil {
				return nil, err
			}
			all = append(all, out...)
		}
		return all, nil
	}
}

// call runs the handler; a panic becomes an error. The handler gets a copy of the slice, so that
// the next run does not see its changes.
func (h Handler) call(ctx context.Context,
	batch []*sarama.ConsumerMessage) (out []*sarama.ProducerMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("txn: the handler panicked: %v\n%s", r, debug.Stack())
		}
	}()
	out, err = h(ctx, slices.Clone(batch))
	if err == nil && slices.Contains(out, nil) {
		return nil, errors.New("txn: the handler returned a nil message")
	}
	return out, err
}

// deadLetter asks Config.DeadLetter for the dead letter of a message.
func (c *Config) deadLetter(m *sarama.ConsumerMessage, reason error) (out *sarama.ProducerMessage,
	err error) {
	if c.DeadLetter == nil {
		return nil, reason
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, errors.Join(reason,
				fmt.Errorf("txn: Config.DeadLetter panicked: %v", r))
		}
	}()
	if out = c.DeadLetter(m, reason); out == nil {
		return nil, errors.Join(reason, errors.New("txn: Config.DeadLetter returned no message"))
	}
	return out, nil
}
