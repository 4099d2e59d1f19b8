package txn

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

// claim is one partition while this member has it.
type claim struct {
	session sarama.ConsumerGroupSession
	claim   sarama.ConsumerGroupClaim
	worker  *worker
	stop    context.CancelFunc      // of worker.stopping
	cancel  context.CancelCauseFunc // of worker.handling
}

// ConsumeClaim implements sarama.ConsumerGroupHandler: it processes one partition until
// it is revoked, the session ends, or a message cannot be processed.
func (p *Processor) ConsumeClaim(session sarama.ConsumerGroupSession,
	sc sarama.ConsumerGroupClaim) error {
	c := p.newClaim(session, sc)
	defer c.stop()
	defer c.worker.buffer.resume()
	done := make(chan error, 1)
	go func() {
		err := errHandlerExited
		defer func() { done <- err }()
		err = c.worker.run()
	}()
	abandoned, err := c.consume(done)
	// From here on the partition may belong to another member.
	c.worker.over.Store(true)
	c.cancel(ErrRevoked)
	if hook := p.cfg.Observer.Revoked; hook != nil {
		hook(sc.Topic(), sc.Partition(), abandoned)
	}
	if isFatal(err) {
		p.stop(err)
	}
	return err
}

func (p *Processor) newClaim(session sarama.ConsumerGroupSession,
	sc sarama.ConsumerGroupClaim) *claim {
	topic, partition := sc.Topic(), sc.Partition()
	c := &claim{session: session, claim: sc}
	var stopping, handling context.Context
	stopping, c.stop = context.WithCancel(session.Context())
	// A handler may go on after the session's end, for the time that Drain gives it.
	handling, c.cancel = context.WithCancelCause(context.WithoutCancel(session.Context()))
	c.worker = &worker{
		cfg: &p.cfg, topic: topic, partition: partition, initial: sc.InitialOffset(),
		stopping: stopping, handling: handling,
		buffer: newBuffer(p.cfg.BatchMax, p.cfg.BatchBytes, func(on bool) bool {
			return p.member.Pause(topic, partition, on)
		}),
		dial: func() (broker, error) { return p.dial(p.cfg.transactionalID(topic, partition)) },
		meta: func() *sarama.ConsumerGroupMetadata { return p.metadata(session) },
	}
	return c
}

// consume takes messages until the worker ends, or the partition is given up.
func (c *claim) consume(done <-chan error) (abandoned bool, err error) {
	buffer := c.worker.buffer
	for {
		messages := c.claim.Messages()
		if buffer.isBlocked() {
			messages = nil
		}
		select {
		case m, ok := <-messages:
			if !ok {
				return c.drain(done)
			}
			buffer.add(m)
		case <-buffer.freed:
		case <-c.session.Context().Done():
			return c.drain(done)
		case err := <-done:
			return false, err
		}
	}
}

// drain gives the worker time to end what it has begun, but no more: a handler that ignores its
// context, or a broker that does not answer, must not keep the group from rebalancing.
func (c *claim) drain(done <-chan error) (abandoned bool, err error) {
	c.stop()
	budget := c.worker.cfg.Drain
	interrupt := time.AfterFunc(budget-budget/5, func() { c.cancel(ErrRevoked) })
	defer interrupt.Stop()
	deadline := time.NewTimer(budget)
	defer deadline.Stop()
	select {
	case err := <-done:
		return false, err
	case <-deadline.C:
		return true, nil
	}
}
