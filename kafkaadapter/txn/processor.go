package txn

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/groupmember"
)

// Processor is a sarama.ConsumerGroupHandler. Use [Processor.Run], which also pauses partitions
// whose handlers fall behind, and stops on a message that cannot be processed. With group.Consume
// alone ConsumeClaim returns the error that Run would return, and a partition whose handler falls
// behind is not read. That holds up all partitions of its broker, and under cooperative rebalancing
// a revocation is noticed only when the partition is read again. One Processor serves one consumer
// group.
type Processor struct {
	cfg    Config
	dial   func(transactionalID string) (broker, error)
	member groupmember.Member
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func New(cfg Config) (*Processor, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	p := &Processor{cfg: cfg}
	p.member.Retry = backoff.Policy{Base: cfg.RetryBase, Cap: cfg.RetryMax}
	p.member.Busy, p.member.Failed, p.member.Paused = ErrRunning, p.groupError, cfg.Observer.Paused
	p.dial = func(transactionalID string) (broker, error) {
		return connect(p.cfg.Brokers, p.cfg.producerConfig(transactionalID), p.cfg.Group)
	}
	return p, nil
}

// Run consumes the topics until ctx ends. Then it gives its partitions up, within Config.Drain and
// the time in which sarama leaves the session, and returns nil. It joins the group again after a
// rebalance and, with a backoff, after an error. It reads the group's Errors channel, which nobody
// else may read meanwhile. It does not close the group. When ctx ends while the member joins the
// group, sarama first waits for the coordinator's answer, up to the group's rebalance timeout.
//
// It returns:
//
//   - an [*UnprocessableError] when a message can neither be processed nor be sent to a
//     dead-letter topic
//   - sarama.ErrClosedConsumerGroup when the group has been closed
//   - [ErrRunning] when it runs already
//   - an [*dedup.InputError] for a nil argument or no topics
//   - an error for a handler that ends its goroutine
//
// In each case the next run processes everything that is not committed.
func (p *Processor) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	return p.member.Run(ctx, group, topics, p)
}

func (p *Processor) groupError(err error) {
	p.cfg.Logger.Warn("txn: consumer group", "error", err)
	if hook := p.cfg.Observer.GroupError; hook != nil {
		hook(err)
	}
}

// Setup implements sarama.ConsumerGroupHandler.
func (p *Processor) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup implements sarama.ConsumerGroupHandler.
func (p *Processor) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// metadata returns the member and generation, which fence a former owner. They are always sent.
func (p *Processor) metadata(session sarama.ConsumerGroupSession) *sarama.ConsumerGroupMetadata {
	var instance *string
	if p.cfg.InstanceID != "" {
		instance = &p.cfg.InstanceID
	}
	return sarama.NewConsumerGroupMetadataFromSession(session, p.cfg.Group, instance)
}

// isFatal reports whether an error must stop the consumer: another session would meet it too.
func isFatal(err error) bool {
	var message *UnprocessableError
	return errors.As(err, &message) || errors.Is(err, errHandlerExited)
}

// stop ends Run, and with it all its partitions.
func (p *Processor) stop(err error) {
	p.member.Fail(err)
	p.member.Halt()
}
