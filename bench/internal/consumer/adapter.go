package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/bench/internal/workload"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

func nothing(context.Context, *kafkaadapter.Message) error { return nil }

// adapter is kafkaadapter with claims in Redis and a handler without effect. A message is
// finished when it is on record, or known to be a duplicate.
func adapter(kind redisadapter.Layout) func(context.Context, job) (*member, error) {
	return func(ctx context.Context, j job) (*member, error) {
		return claimed(ctx, j, kind, nothing, dedup.Observer{
			Ended: func(dedup.Event) { j.done.add(1) },
			Claimed: func(e dedup.Event) {
				if e.Outcome == dedup.Duplicate {
					j.done.add(1)
				}
			},
		})
	}
}

// claimed runs handle under claims in Redis.
func claimed(ctx context.Context, j job, kind redisadapter.Layout, handle kafkaadapter.Handler, o dedup.Observer) (*member, error) {
	d, shut, err := workload.OpenDeduper(ctx, j.redis, kind, func(c *dedup.Config) { c.Observer = o })
	if err != nil {
		return nil, err
	}
	return startAdapter(ctx, j, kafkaadapter.Config{Deduper: d, Group: j.group, Handler: handle}, shut)
}

// unclaimed is kafkaadapter without a store: order, watermark and commit alone.
func unclaimed(ctx context.Context, j job) (*member, error) {
	handle := func(context.Context, *kafkaadapter.Message) error { j.done.add(1); return nil }
	return startAdapter(ctx, j, kafkaadapter.Config{Unclaimed: true, Handler: handle}, func() {})
}

func startAdapter(ctx context.Context, j job, cfg kafkaadapter.Config, shut func()) (*member, error) {
	group, a, err := newAdapter(j, cfg)
	if err != nil {
		shut()
		return nil, err
	}
	run := func(ctx context.Context) error { return a.Run(ctx, group, []string{j.log.Topic}) }
	return background(ctx, run, func() error {
		defer shut()
		return group.Close()
	}), nil
}

func newAdapter(j job, cfg kafkaadapter.Config) (sarama.ConsumerGroup, *kafkaadapter.Adapter, error) {
	a, err := kafkaadapter.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	client := clientConfig()
	if err := a.CheckConfig(client); err != nil {
		return nil, nil, err
	}
	group, err := sarama.NewConsumerGroup(j.brokers, j.group, client)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("consumer: %w", err))
	}
	return group, a, nil
}
