package txn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
)

// worker processes the buffer of one claim: a batch at a time, each in one transaction. Messages
// that are not committed stay in the buffer, and run again from there.
type worker struct {
	cfg       *Config
	topic     string
	partition int32
	initial   int64 // where sarama has begun, or one of its constants
	buffer    *buffer
	meta      func() *sarama.ConsumerGroupMetadata // as the session has it now
	dial      func() (broker, error)

	stopping context.Context // ends when the partition is to be given up
	handling context.Context // ends when a handler must be given up
	over     atomic.Bool     // the claim has been given up: nothing more may be committed

	broker   broker
	producer producer // nil: resume first
	uuid     string   // of the topic when it was assigned, empty where nobody knows
	limit    int      // messages in the next batch
	failures int      // in a row, for the backoff
	attempts int      // in a row of the current batch, for Config.Attempts
}

// run works until the partition must be given up, and then returns nil. An error ends the claim.
func (w *worker) run() error {
	defer w.close()
	w.limit = w.cfg.BatchMax
	for w.stopping.Err() == nil {
		err := w.step()
		var end *endError
		switch {
		case err == nil:
			w.failures = 0
			continue
		case errors.As(err, &end):
			return end.error
		case errors.Is(err, errAtOnce):
			continue
		}
		w.failed(err)
	}
	return nil
}

// endError ends a claim.
type endError struct{ error }

// errAtOnce: run again without a wait.
var errAtOnce = errors.New("txn: at once")

// failed waits before the next step, but not at the end of the claim.
func (w *worker) failed(err error) {
	if errors.Is(err, ErrRevoked) {
		return // nobody's failure
	}
	w.cfg.Logger.Warn("txn: not committed", "topic", w.topic, "partition", w.partition,
		"error", err)
	if hook := w.cfg.Observer.Failed; hook != nil {
		hook(w.topic, w.partition, err)
	}
	retry := backoff.Policy{Base: w.cfg.RetryBase, Cap: w.cfg.RetryMax}
	_ = backoff.Sleep(w.stopping, retry.Delay(w.failures, 0, nil))
	w.failures++
}

// step runs the next batch.
func (w *worker) step() error {
	if w.producer == nil {
		if err := w.resume(); err != nil {
			return err
		}
	}
	batch := w.buffer.next(w.stopping, w.limit, w.cfg.BatchWait)
	if len(batch) == 0 {
		return nil
	}
	out, err := w.handle(batch)
	if err == nil {
		err = w.transact(out, batch[len(batch)-1].Offset+1)
	}
	if err == nil {
		w.attempts, w.limit = 0, min(2*w.limit, w.cfg.BatchMax)
		return nil
	}
	return w.retry(batch, err)
}

// handle runs the handler.
func (w *worker) handle(batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
	ctx := w.handling
	if w.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.cfg.Timeout)
		defer cancel()
	}
	began := time.Now()
	out, err := w.cfg.Handler.call(ctx, batch)
	if hook := w.cfg.Observer.Handled; hook != nil {
		hook(batch, time.Since(began), err)
	}
	// An interrupted handler runs again even if it returned nil: that costs nothing, while half an
	// output would be a loss. For the same reason none of its errors counts as permanent.
	switch {
	case w.handling.Err() != nil:
		return nil, ErrRevoked
	case ctx.Err() != nil:
		return nil, &runError{fmt.Errorf(
			"txn: the handler ran for longer than Config.Timeout (%v); it returned: %s",
			w.cfg.Timeout, fmt.Sprint(err))}
	case err != nil:
		return nil, &runError{err}
	}
	return out, nil
}

// runError is an error of the handler, or a broker's refusal of its output: the messages may be the
// cause.
type runError struct{ error }

// retry decides what happens to a batch that failed. To find the message that causes it, the batch
// is divided: the parts before the message are committed, and in the end it is alone.
func (w *worker) retry(batch []*sarama.ConsumerMessage, err error) error {
	var blame *runError
	if !errors.As(err, &blame) {
		return err
	}
	w.attempts++
	switch {
	case !dedup.IsPermanent(blame.error) && (w.cfg.Attempts == 0 || w.attempts < w.cfg.Attempts):
		return blame.error
	case len(batch) > 1:
		w.attempts, w.limit = 0, len(batch)/2
		return errAtOnce
	default:
		return w.bury(batch[0], blame.error)
	}
}

// bury commits the dead letter of a message instead of its outputs.
func (w *worker) bury(m *sarama.ConsumerMessage, reason error) error {
	deadLetter, err := w.cfg.deadLetter(m, reason)
	if err != nil {
		return &endError{unprocessable(m, err)}
	}
	err = w.transact([]*sarama.ProducerMessage{deadLetter}, m.Offset+1)
	var blame *runError
	switch {
	case errors.As(err, &blame) && dedup.IsPermanent(blame.error):
		return &endError{unprocessable(m, errors.Join(reason, blame.error))}
	case err != nil:
		return err
	}
	w.attempts, w.limit = 0, min(2*w.limit, w.cfg.BatchMax)
	w.cfg.Logger.Warn("txn: dead letter", "topic", m.Topic, "partition", m.Partition, "offset",
		m.Offset, "error", reason)
	if hook := w.cfg.Observer.DeadLettered; hook != nil {
		hook(m, reason)
	}
	return nil
}
