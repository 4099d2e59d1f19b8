package kafkaadapter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// Adapter is a sarama.ConsumerGroupHandler. Use [Adapter.Run], which also pauses
// partitions and stops on what cannot be processed; with group.Consume alone, partitions
// are not paused and ConsumeClaim returns the error that Run would. One Adapter serves
// one consumer group.
type Adapter struct {
	cfg   Config
	retry backoff.Policy

	mu       sync.Mutex
	group    sarama.ConsumerGroup // of Run; nil with Consume alone
	sessions map[sarama.ConsumerGroupSession]*flow.Committer
	fatal    error
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func New(cfg Config) (*Adapter, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Adapter{
		cfg:      cfg,
		retry:    backoff.Policy{Base: cfg.RetryBase, Cap: cfg.RetryMax},
		sessions: make(map[sarama.ConsumerGroupSession]*flow.Committer),
	}, nil
}

// Run consumes the topics until ctx ends, and then returns nil after its partitions
// have been drained, which takes up to Config.Drain. It joins the group again after a
// rebalance and, with a backoff, after an error. It reads the group's Errors channel;
// nobody else may meanwhile. It does not close the group.
//
// It returns an [*UnprocessableError] when a message can neither be processed nor
// parked, sarama.ErrClosedConsumerGroup when the group is closed, and an
// [*dedup.InputError] for a nil argument or no topics.
func (a *Adapter) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case group == nil:
		return &dedup.InputError{Field: "Group", Reason: "is nil"}
	case len(topics) == 0:
		return &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	a.mu.Lock()
	a.group, a.fatal = group, nil
	a.mu.Unlock()

	var listening sync.WaitGroup
	stop := make(chan struct{})
	listening.Go(func() { a.listen(group.Errors(), stop) })
	defer listening.Wait()
	defer close(stop)
	return a.consume(ctx, group, topics)
}

// consume joins again and again.
func (a *Adapter) consume(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	var wait time.Duration
	for failures := 0; ; {
		began := time.Now()
		err := group.Consume(ctx, topics, a)
		if fatal := a.fatalError(); fatal != nil {
			return fatal
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return err
		}
		if err != nil {
			a.groupError(err)
		}
		// A session that lived was a rebalance; one that did not, repeated, is an error
		// that sarama tells on Errors alone, such as an offset out of range.
		if err == nil && time.Since(began) > time.Second {
			failures, wait = 0, 0
			continue
		}
		wait = a.retry.Delay(failures, wait, nil)
		failures++
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// listen drains the group's errors: nobody else does, and sarama waits for a reader.
func (a *Adapter) listen(errs <-chan error, stop <-chan struct{}) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			a.groupError(err)
		case <-stop:
			return
		}
	}
}

func (a *Adapter) groupError(err error) {
	a.cfg.Logger.Warn("kafkaadapter: consumer group", "error", err)
	if hook := a.cfg.Observer.GroupError; hook != nil {
		hook(err)
	}
}

// Setup implements sarama.ConsumerGroupHandler: it starts the session's committer.
func (a *Adapter) Setup(session sarama.ConsumerGroupSession) error {
	committer, err := flow.NewCommitter(flow.CommitterConfig{
		Interval: a.cfg.CommitEvery,
		Count:    a.cfg.CommitCount,
		Mark: func(topic string, partition int32, offset int64) {
			if hook := a.cfg.Observer.Committing; hook != nil {
				hook(topic, partition, offset)
			}
			session.MarkOffset(topic, partition, offset, "")
		},
		Commit: session.Commit,
	})
	if err != nil {
		return err
	}
	committer.Start()
	a.mu.Lock()
	a.sessions[session] = committer
	a.mu.Unlock()
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler: it commits what is finished and stops
// the session's committer.
func (a *Adapter) Cleanup(session sarama.ConsumerGroupSession) error {
	a.mu.Lock()
	committer := a.sessions[session]
	delete(a.sessions, session)
	a.mu.Unlock()
	if committer == nil {
		return nil
	}
	// The session's context has ended by now; its commit still counts, and must not
	// keep the group from rebalancing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(session.Context()), a.cfg.Drain)
	defer cancel()
	return committer.Stop(ctx)
}

// ConsumeClaim implements sarama.ConsumerGroupHandler: it consumes one partition until
// it is revoked, the session ends, or a message cannot be processed.
func (a *Adapter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	p, err := a.newPartition(session, claim)
	if err != nil {
		return err
	}
	err = p.consume()
	if isFatal(err) {
		a.mu.Lock()
		a.fatal = errors.Join(a.fatal, err)
		a.mu.Unlock()
	}
	return err
}

func (a *Adapter) fatalError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fatal
}

// pause pauses or resumes a partition, where Run has told the group.
func (a *Adapter) pause(topic string, partition int32, on bool) {
	a.mu.Lock()
	group := a.group
	a.mu.Unlock()
	if group != nil {
		set := map[string][]int32{topic: {partition}}
		if on {
			group.Pause(set)
		} else {
			group.Resume(set)
		}
	}
	if hook := a.cfg.Observer.Paused; hook != nil {
		hook(topic, partition, on)
	}
}
