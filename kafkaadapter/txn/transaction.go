package txn

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/internal/backoff"
)

// transact commits the outputs and the offset next, the first that is not processed. If it is not
// certain that an error has ended in an abort, the producer is dropped, and resume finds out.
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

// attempt makes a transaction up to its commit or an error, and returns what must follow.
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
	// Under cooperative rebalancing the generation of a session grows while the session keeps its
	// partitions. The code reads the generation first, and then the flag confirms that the claim
	// was still held. So in that generation the partition was not another member's.
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
	// Abort the transaction, so that no reader waits for it. resume finds out whether this process
	// is still a member.
	if e := p.AbortTxn(); e != nil {
		err = errors.Join(err, e)
	}
	return renew, fmt.Errorf("txn: commit: %w", err)
}

// resume makes a producer and finds out how far the partition is processed, whatever happened
// before: an owner crashed, another one still runs, or the result of our own commit is not known.
// It asks the broker, in this order:
//
//  1. Is this process a member, in its generation? If not, it must not fence the rightful owner.
//  2. InitProducerId: from here on no transaction of an older producer can be committed, and
//     none is undecided.
//  3. The committed offset. If it were asked before 2, a commit that was under way could come after
//     the answer. So the first producer of a claim asks for it, too: sarama has asked for the start
//     offset before the claim began. A member that has joined again in the same generation may
//     still have a late commit of its own, which the join does not fence.
//
// The topic is looked up before 3, once in a claim: the commit's metadata say whether sarama has
// begun at an offset of a topic that has been deleted since.
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

// start returns the offset at which a new producer continues.
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

// position waits while another producer's transaction is committing the offset.
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
