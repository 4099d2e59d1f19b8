package franz

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// Consumer consumes topics as a member of a group. Use [Consumer.Run].
type Consumer struct {
	cfg        Config
	retry      backoff.Policy
	partitions *partition.Config
	running    atomic.Bool
	session    atomic.Pointer[session] // of Run, for Progress
	series     partition.Series        // of the group's errors
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func New(cfg Config) (*Consumer, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	retry := backoff.Policy{Base: cfg.RetryBase, Cap: cfg.RetryMax}
	return &Consumer{cfg: cfg, retry: retry, partitions: partitionConfig(cfg, retry)}, nil
}

// Run makes a client of the options and consumes until ctx ends; then it returns nil, after
// its partitions have been drained, which takes up to Config.Drain and a few seconds, and
// the group has been left. It needs kgo.ConsumerGroup and kgo.ConsumeTopics, and takes every
// other option: seeds, SASL, TLS, dialer, balancers, kgo.InstanceID, kgo.ServerSideBalancer,
// hooks. Without options of your own it reads committed messages from the start of each
// partition, and takes an offset that is out of range for an error:
//
//	kgo.FetchIsolationLevel(kgo.ReadCommitted())
//	kgo.ConsumeStartOffset(kgo.NewOffset().AtStart())
//	kgo.ConsumeResetOffset(kgo.NoResetOffset())
//	kgo.FetchMaxWait(100 * time.Millisecond)
//
// Callbacks for assigned, revoked and lost partitions and for fetched offsets are replaced by its
// own, and automatic commits are off. The client belongs to Run: nobody else may poll it, commit
// with it, or close it. When the group has fenced this member off, or a partition cannot be read
// on, it is closed, and after a backoff another one is made of the same options.
//
// It returns an [*UnprocessableError] when a message can neither be processed nor parked, an error
// that wraps dedup.ErrClosed when the Deduper has been closed, one that wraps kerr.FencedInstanceID
// when another process runs under the same kgo.InstanceID, kgo.ErrClientClosed when somebody has
// closed the client, [ErrRunning] when it runs already, an [*dedup.InputError] that names a bad
// option, what kgo says of the options, one that wraps an [*dedup.InputError] when Config.Own
// returns it, or the store of an owned partition does, and an error for a handler that ends its
// goroutine. Offsets of unfinished messages stay uncommitted in each case.
func (c *Consumer) Run(ctx context.Context, opts ...kgo.Opt) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case slices.Contains(opts, nil):
		return &dedup.InputError{Field: "Options", Reason: "has one that is nil"}
	case !c.running.CompareAndSwap(false, true):
		return ErrRunning
	}
	defer c.running.Store(false)
	for failures := 0; ; failures++ {
		began := time.Now()
		s, err := c.open(ctx, opts)
		if err != nil {
			return err
		}
		c.session.Store(s)
		err = s.run(ctx)
		c.session.Store(nil)
		switch {
		case isFatal(err), errors.Is(err, kgo.ErrClientClosed):
			return err
		case ctx.Err() != nil:
			return nil
		}
		c.groupError(err)
		if time.Since(began) > c.cfg.RetryMax {
			failures = 0
		}
		if backoff.Sleep(ctx, c.retry.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

func (c *Consumer) groupError(err error) {
	c.series.Warn(c.cfg.Logger, "franz: consumer group", err)
	if hook := c.cfg.Observer.GroupError; hook != nil {
		hook(err)
	}
}
