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
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
	"github.com/onceward/onceward/kafkaadapter/internal/member"
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
	counts     *partition.Counts
	scopes     *letter.Scopes
	topics     *topicWatch
	series     partition.Series // of the group's errors

	member member.Member

	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]*sessionState
	shown    map[*partition.Partition]sarama.ConsumerGroupClaim // for Progress
}

// commitRepeat is for how long a commit in doubt is repeated. Nothing is sent when
// nothing is dirty, so it costs a wake-up per interval; and a coordinator may refuse
// commits for long while it goes on answering heartbeats.
const commitRepeat = 24 * time.Hour

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
	a.member.Retry, a.member.Busy, a.member.Failed, a.member.Paused = retry, ErrRunning,
		a.groupError, cfg.Observer.Paused
	a.scopes = cfg.scopes()
	a.counts = partition.NewCounts(a.count)
	a.topics = newTopicWatch(cfg.Group, retry, a.source, a.groupError)
	a.member.Topics = a.topics.present
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
// It returns an [*UnprocessableError] when a message can neither be processed nor parked, an error
// that wraps dedup.ErrClosed when the Deduper has been closed, sarama.ErrClosedConsumerGroup when
// the group has, [ErrRunning] when it runs already, an [*dedup.InputError] for a nil argument or no
// topics, one that wraps an [*dedup.InputError] when Config.Own returns it, or the store of an
// owned partition does, and an error for a handler that ends its goroutine. Offsets of unfinished
// messages stay uncommitted in each case.
func (a *Adapter) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	if a.source() == nil {
		a.cfg.Logger.Warn("kafkaadapter: a topic that is deleted and created again is not noticed, and messages of the new one are skipped: " +
			"set Config.CommitClient, or stop the group before that")
	}
	return a.member.Run(ctx, group, topics, a)
}

func (a *Adapter) groupError(err error) {
	a.series.Warn(a.cfg.Logger, "kafkaadapter: consumer group", err)
	if hook := a.cfg.Observer.GroupError; hook != nil {
		hook(err)
	}
}

// isFatal tells what must stop the consumer from what another session may mend.
func isFatal(err error) bool {
	var message *UnprocessableError
	return errors.As(err, &message) || errors.Is(err, dedup.ErrClosed) ||
		errors.Is(err, flow.ErrNoVerdict) || errors.Is(err, partition.ErrRefused)
}
