package kafkadriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// Subscribed are the topics of a consumer: those that it was given, and those of Attempts.Delayed.
func (e *Engine) Subscribed(topics []string) []string {
	all := slices.Clone(topics)
	for _, d := range e.Attempts.Delayed {
		if len(topics) > 0 && !slices.Contains(all, d.Topic) {
			all = append(all, d.Topic)
		}
	}
	return all
}

// laterError sends a failed message to a topic of Attempts.Delayed. The message is treated like a
// parked message: the same goroutines send it, and its key waits until the brokers have it.
type laterError struct {
	topic string
	err   error
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// delays sends a failed message on to the next topic, or to Park after the last one. If it returns
// false, the message is retried in its place.
func (p *Partition) delays(t task, err error) bool {
	all := p.cfg.Attempts.Delayed
	var asks interface{ RetryAfter() time.Duration }
	if len(all) == 0 || errors.As(err, &asks) {
		return false
	}
	next := 0
	if at, ok := p.cfg.delays[p.at.Topic]; ok {
		next = at + 1
	}
	if next == len(all) {
		p.park(t, fmt.Errorf("%w in %q, the last topic: %w", kafkaadapter.ErrAttempts,
			p.at.Topic, err))
		return true
	}
	p.cfg.suspects.end(t.Item) // it does not run
	p.parking.add(parkJob{p, t, &laterError{all[next].Topic, err}})
	return true
}

// claims reports whether messages wait for the claimer before they go to the queues, because they
// must be claimed or their delay is not over.
func (p *Partition) claims() bool { return !p.cfg.unclaimed() || p.delay > 0 }

// due waits until the delay of a message is over, and takes up to a batch of such messages.
func (p *Partition) due(ctx context.Context, to []*item) ([]*item, error) {
	for {
		batch, err := p.pending.next(ctx, p.cfg.Tuning.BatchMax, to[:0])
		if err != nil || p.delay == 0 {
			return batch, err
		}
		n := 0
		for n < len(batch) && time.Until(batch[n].waits.due) <= 0 {
			n++
		}
		p.pending.putBack(batch[n:])
		if n > 0 {
			return batch[:n], nil
		}
		if err := backoff.Sleep(ctx, time.Until(batch[0].waits.due)); err != nil {
			return nil, err
		}
	}
}

// putOffTo sets when a received message is due: at its timestamp plus the delay of its topic, but
// at most the delay from now, because the clock of its producer, or of its broker, may be ahead.
func (p *Partition) putOffTo(it *item) {
	if p.delay == 0 {
		return
	}
	w := it.wait()
	w.due = it.msg.Timestamp.Add(p.delay)
	if latest := time.Now().Add(p.delay); w.due.After(latest) {
		w.due = latest
	}
}
