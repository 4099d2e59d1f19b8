package txn

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/internal/backoff"
)

// transact commits the outputs and the offset next, the first that is not processed. After
// an error that is not certain to have ended in an abort, the producer is gone, and resume
// finds out.
func (w *worker) transact(out []*sarama.ProducerMessage, next int64) error {
	act, err := w.attempt(out, next)
	switch {
	case act != again:
	case w.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0:
		act = renew // and nothing to abort it with
	default:
		if e := w.producer.AbortTxn(); e != nil {
			act, err = renew, errors.Join(err, fmt.Errorf("txn: abort: %w", e))
		}
	}
	switch act {
	case advance:
		w.buffer.committed(next)
		if hook := w.cfg.Observer.Committed; hook != nil {
			hook(w.topic, w.partition, next, len(out))
		}
		return nil
	case renew:
		w.drop()
	}
	return err
}

// attempt goes through a transaction up to its commit, or to an error and what follows it.
func (w *worker) attempt(out []*sarama.ProducerMessage, next int64) (action, error) {
	p := w.producer
	if err := p.BeginTxn(); err != nil {
		return renew, fmt.Errorf("txn: begin: %w", err)
	}
	if len(out) > 0 {
		if err := p.SendMessages(out); err != nil {
			return again, unsendable(err)
		}
	}
	if err := w.sameTopic(); err != nil {
		return again, err
	}
	// Under cooperative rebalancing the generation of a session grows while it keeps its
	// partitions. It is read while the claim is held, which the flag then confirms: a
	// generation in which the partition is another member's cannot be among those.
	meta := w.meta()
	if w.over.Load() {
		return again, ErrRevoked
	}
	if err := p.AddOffsetsToTxnWithGroupMetadata(w.offsets(next), meta); err != nil {
		return again, fmt.Errorf("txn: offsets: %w", err)
	}
	err := p.CommitTxn()
	switch {
	case err == nil:
		return advance, nil
	case !refused(err, p.TxnStatus()):
		return renew, fmt.Errorf("txn: commit: %w", err)
	}
	// The transaction is aborted, so that no reader waits for it; whether we still are a
	// member resume finds out.
	if e := p.AbortTxn(); e != nil {
		err = errors.Join(err, e)
	}
	return renew, fmt.Errorf("txn: commit: %w", err)
}

// resume makes a producer and finds out how far the partition is processed, whatever
// happened before: an owner that crashed, one that still runs, a commit of our own of
// which we know nothing. It is asked of the broker, in this order:
//
//  1. Are we a member, in our generation? One that is not must not fence the rightful owner.
//  2. InitProducerId: from here on no transaction of an older producer can be committed, and
//     none is undecided.
//  3. The committed offset. Asked before 2, a commit that was under way could come after
//     the answer. This holds for the first producer of a claim as well. sarama asks for the
//     offset to start from before the claim begins, and a member that joins again in the
//     same generation does not fence its own late commit with it.
//
// The topic is looked up before 3, once in a claim: the commit says whether sarama has begun at
// an offset of a topic that was deleted since.
func (w *worker) resume() error {
	if w.broker == nil {
		b, err := w.dial()
		if err != nil {
			return fmt.Errorf("txn: connect: %w", err)
		}
		w.broker = b
	}
	if err := w.broker.member(w.meta()); err != nil {
		if isStale(err) {
			return &endError{errors.Join(ErrStale, err)}
		}
		return fmt.Errorf("txn: heartbeat: %w", err)
	}
	if w.stopping.Err() != nil {
		return ErrRevoked
	}
	p, err := w.broker.producer()
	if err != nil {
		return fmt.Errorf("txn: new producer: %w", err)
	}
	next, err := w.start(p)
	if err != nil {
		_ = p.Close()
		return err
	}
	w.producer = p
	w.buffer.committed(next)
	if hook := w.cfg.Observer.Resumed; hook != nil {
		hook(w.topic, w.partition, next)
	}
	return nil
}

// start is where a new producer continues.
func (w *worker) start(p producer) (next int64, err error) {
	if w.uuid == "" {
		if w.uuid, err = w.broker.topic(w.topic); err != nil {
			return 0, fmt.Errorf("txn: topic: %w", err)
		}
	}
	next, metadata, err := w.position()
	if err != nil {
		return 0, fmt.Errorf("txn: committed offset: %w", err)
	}
	return next, w.begins(p, next, metadata)
}

// position waits for an offset that another producer's transaction is committing.
func (w *worker) position() (int64, string, error) {
	retry := backoff.Policy{Base: w.cfg.RetryBase, Cap: w.cfg.RetryMax}
	for n := 0; ; n++ {
		next, metadata, err := w.broker.committed(w.topic, w.partition)
		if !errors.Is(err, sarama.ErrUnstableOffsetCommit) {
			return next, metadata, err
		}
		if backoff.Sleep(w.stopping, retry.Delay(n, 0, nil)) != nil {
			return 0, "", ErrRevoked
		}
	}
}

func (w *worker) drop() {
	if w.producer != nil {
		_ = w.producer.Close()
		w.producer = nil
	}
}

func (w *worker) close() {
	w.drop()
	if w.broker != nil {
		w.broker.close()
	}
}
