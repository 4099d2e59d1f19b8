package txn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
)

// Processor is a sarama.ConsumerGroupHandler. Use [Processor.Run], which also pauses
// partitions whose handlers fall behind, and stops on what cannot be processed. With
// group.Consume alone ConsumeClaim returns the error that Run would, and a partition whose
// handler falls behind is not read, which holds up all partitions of its broker, and lets
// a revocation under cooperative rebalancing go unnoticed until it is read again. One
// Processor serves one consumer group.
type Processor struct {
	cfg  Config
	dial func(transactionalID string) (broker, error)

	mu    sync.Mutex
	group sarama.ConsumerGroup // of Run; nil with Consume alone
	halt  context.CancelFunc   // ends Run's consuming
	fatal error
}

// rejoinMax bounds the wait before joining again: the others' rebalance waits for this
// member.
const rejoinMax = 2 * time.Second

// New checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func New(cfg Config) (*Processor, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	p := &Processor{cfg: cfg}
	p.dial = func(transactionalID string) (broker, error) {
		return connect(p.cfg.Brokers, p.cfg.producerConfig(transactionalID), p.cfg.Group)
	}
	return p, nil
}

// Run consumes the topics until ctx ends, and then returns nil after its partitions have
// been given up, within Config.Drain and the time in which sarama leaves the session. It
// joins the group again after a rebalance and, with a backoff, after an error. It reads
// the group's Errors channel; nobody else may meanwhile. It does not close the group. When
// ctx ends while the group is being joined, sarama waits for the coordinator's answer
// first: up to the group's rebalance timeout.
//
// It returns an [*UnprocessableError] when a message can neither be processed nor be
// sent to a dead-letter topic, sarama.ErrClosedConsumerGroup when the group has been closed,
// [ErrRunning] when it runs already, an [*dedup.InputError] for a nil argument or no
// topics, and an error for a handler that ends its goroutine. What is not committed is
// processed by the next run in each case.
func (p *Processor) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case group == nil:
		return &dedup.InputError{Field: "Group", Reason: "is nil"}
	case len(topics) == 0:
		return &dedup.InputError{Field: "Topics", Reason: "is empty"}
	case slices.Contains(topics, ""):
		return &dedup.InputError{Field: "Topics", Reason: "has an empty name"}
	}
	consuming, halt := context.WithCancel(ctx)
	defer halt()
	if err := p.begin(group, halt); err != nil {
		return err
	}
	defer p.end()

	var listening sync.WaitGroup
	stop := make(chan struct{})
	listening.Go(func() { p.listen(group.Errors(), stop) })
	defer listening.Wait()
	defer close(stop)
	return p.consume(consuming, group, topics)
}

func (p *Processor) begin(group sarama.ConsumerGroup, halt context.CancelFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != nil {
		return ErrRunning
	}
	p.group, p.halt, p.fatal = group, halt, nil
	return nil
}

func (p *Processor) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group, p.halt = nil, nil
}

// consume joins again and again.
func (p *Processor) consume(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	retry := backoff.Policy{Base: min(p.cfg.RetryBase, rejoinMax), Cap: min(p.cfg.RetryMax, rejoinMax)}
	for failures := 0; ; failures++ {
		began := time.Now()
		err := group.Consume(ctx, topics, p)
		if fatal := p.fatalError(); fatal != nil {
			return fatal
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return err
		}
		if err != nil {
			p.groupError(err)
		} else if time.Since(began) > time.Second {
			failures = -1 // a session that lived: this was a rebalance
			continue
		}
		// One that did not live, again and again, is an error that sarama tells on Errors
		// alone, such as an offset out of range.
		if backoff.Sleep(ctx, retry.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

// listen reads the group's errors: what nobody reads sarama throws away.
func (p *Processor) listen(errs <-chan error, stop <-chan struct{}) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			p.groupError(err)
		case <-stop:
			return
		}
	}
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

// metadata is what fences an owner of the past: never without member and generation.
func (p *Processor) metadata(session sarama.ConsumerGroupSession) *sarama.ConsumerGroupMetadata {
	var instance *string
	if p.cfg.InstanceID != "" {
		instance = &p.cfg.InstanceID
	}
	return sarama.NewConsumerGroupMetadataFromSession(session, p.cfg.Group, instance)
}

// isFatal tells what must stop the consumer from what another session may mend.
func isFatal(err error) bool {
	var message *UnprocessableError
	return errors.As(err, &message) || errors.Is(err, errHandlerExited)
}

// stop ends Run, and with it all its partitions.
func (p *Processor) stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = errors.Join(p.fatal, err)
	if p.halt != nil {
		p.halt()
	}
}

func (p *Processor) fatalError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fatal
}

// pause pauses or resumes a partition, and reports whether there is a Run that can.
func (p *Processor) pause(topic string, partition int32, on bool) bool {
	p.mu.Lock()
	group := p.group
	p.mu.Unlock()
	if group != nil {
		set := map[string][]int32{topic: {partition}}
		if on {
			group.Pause(set)
		} else {
			group.Resume(set)
		}
	}
	if hook := p.cfg.Observer.Paused; hook != nil {
		hook(topic, partition, on)
	}
	return group != nil
}
