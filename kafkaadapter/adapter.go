package kafkaadapter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// Adapter is a sarama.ConsumerGroupHandler. Use [Adapter.Run], which also pauses
// partitions and stops on what cannot be processed. With group.Consume alone ConsumeClaim
// returns the error that Run would, and a partition that is to be paused is not read,
// which holds up all partitions of its broker. One Adapter serves one consumer group.
type Adapter struct {
	cfg        Config
	retry      backoff.Policy
	partitions *partition.Config
	client     commitClient // nil: the sessions commit

	mu       sync.Mutex
	group    sarama.ConsumerGroup // of Run; nil with Consume alone
	halt     context.CancelFunc   // ends Run's consuming
	sessions map[sarama.ConsumerGroupSession]*sessionState
	shown    map[*partition.Partition]sarama.ConsumerGroupClaim // for Progress
	fatal    error
}

const (
	// commitRepeat is for how long a commit in doubt is repeated. Nothing is sent when
	// nothing is dirty, so it costs a wake-up per interval; and a coordinator may refuse
	// commits for long while it goes on answering heartbeats.
	commitRepeat = 24 * time.Hour
	// rejoinMax bounds the wait before joining again without an error to wait for: the
	// others' rebalance waits for this member.
	rejoinMax = 2 * time.Second
)

// New checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func New(cfg Config) (*Adapter, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	retry := backoff.Policy{Base: cfg.RetryBase, Cap: cfg.RetryMax}
	a := &Adapter{
		cfg:        cfg,
		retry:      retry,
		partitions: partitionConfig(cfg, retry),
		sessions:   make(map[sarama.ConsumerGroupSession]*sessionState),
		shown:      make(map[*partition.Partition]sarama.ConsumerGroupClaim),
	}
	if cfg.CommitClient != nil {
		a.client = realClient{cfg.CommitClient}
	}
	return a, nil
}

// Run consumes the topics until ctx ends, and then returns nil after its partitions
// have been drained, which takes up to Config.Drain and a few seconds. It joins the group
// again after a rebalance and, with a backoff, after an error. It reads the group's
// Errors channel; nobody else may meanwhile. It does not close the group. When ctx ends
// while the group is being joined, sarama waits for the coordinator's answer first: up to
// the group's rebalance timeout (Consumer.Group.Rebalance.Timeout, 60 s by default).
//
// An error that lasts, such as a password that is refused since, or a topic that may not be
// read, does not end it: Observer.GroupError and the log are told at every try, and it goes on
// when the error has gone. Cancel ctx in the hook where that is not wanted. With a password
// that is wrong from the start there is no group: sarama.NewConsumerGroup fails.
//
// It returns an [*UnprocessableError] when a message can neither be processed nor
// parked, an error that wraps dedup.ErrClosed when the Deduper has been closed,
// sarama.ErrClosedConsumerGroup when the group has, [ErrRunning] when it runs already,
// an [*dedup.InputError] for a nil argument or no topics, and an error for a handler
// that ends its goroutine. Offsets of unfinished messages stay uncommitted in each case.
func (a *Adapter) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
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
	if err := a.begin(group, halt); err != nil {
		return err
	}
	defer a.end()

	var listening sync.WaitGroup
	stop := make(chan struct{})
	listening.Go(func() { a.listen(group.Errors(), stop) })
	defer listening.Wait()
	defer close(stop)
	return a.consume(consuming, group, topics)
}

func (a *Adapter) begin(group sarama.ConsumerGroup, halt context.CancelFunc) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.group != nil {
		return ErrRunning
	}
	a.group, a.halt, a.fatal = group, halt, nil
	return nil
}

func (a *Adapter) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group, a.halt = nil, nil
}

// consume joins again and again.
func (a *Adapter) consume(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	rejoin := backoff.Policy{Base: min(a.cfg.RetryBase, rejoinMax), Cap: min(a.cfg.RetryMax, rejoinMax)}
	for failures := 0; ; failures++ {
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
		policy := rejoin
		if err != nil {
			a.groupError(err)
			policy = a.retry
		} else if time.Since(began) > time.Second {
			failures = -1 // a session that lived: this was a rebalance
			continue
		}
		// One that did not live, again and again, is an error that sarama tells on Errors
		// alone, such as an offset out of range.
		if backoff.Sleep(ctx, policy.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

// listen reads the group's errors: what nobody reads sarama throws away.
func (a *Adapter) listen(errs <-chan error, stop <-chan struct{}) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			a.groupError(err)
		case <-stop:
			a.listenLast(errs)
			return
		}
	}
}

// listenLast reads what is there, such as what became of the last commit.
func (a *Adapter) listenLast(errs <-chan error) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			a.groupError(err)
		default:
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

// isFatal tells what must stop the consumer from what another session may mend.
func isFatal(err error) bool {
	var message *UnprocessableError
	return errors.As(err, &message) || errors.Is(err, dedup.ErrClosed) || errors.Is(err, flow.ErrNoVerdict)
}

// stopRun ends all partitions of Run. It is called as soon as one of them has a reason,
// which its ConsumeClaim returns when it has been drained.
func (a *Adapter) stopRun() {
	a.mu.Lock()
	halt := a.halt
	a.mu.Unlock()
	if halt != nil {
		halt()
	}
}

func (a *Adapter) fatalError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fatal
}
