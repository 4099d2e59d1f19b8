package kafkabench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
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
func claimed(ctx context.Context, j job, kind redisadapter.Layout, handle kafkaadapter.Handler,
	o dedup.Observer) (*member, error) {
	opened := &harness.Setup{}
	d, err := work.Of(kind).Open(ctx, opened, j.redis, 0, func(c *dedup.Config) { c.Observer = o })
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return startAdapter(ctx, j,
		kafkaadapter.Config{Deduper: d.Deduper, Group: j.group, Handler: handle}, opened.Close)
}

// unclaimed is kafkaadapter without a store: order, watermark and commit alone.
func unclaimed(ctx context.Context, j job) (*member, error) {
	handle := func(context.Context, *kafkaadapter.Message) error { j.done.add(1); return nil }
	return startAdapter(ctx, j, kafkaadapter.Config{Unclaimed: true, Handler: handle},
		func() error { return nil })
}

func startAdapter(ctx context.Context, j job, cfg kafkaadapter.Config,
	shut func() error) (*member, error) {
	a, err := kafkaadapter.New(cfg)
	if err != nil {
		return nil, errors.Join(err, shut())
	}
	client := clientConfig()
	group, failed := sarama.NewConsumerGroup(j.brokers, j.group, client)
	if err := errors.Join(failed, a.CheckConfig(client)); err != nil {
		return nil, errors.Join(fmt.Errorf("kafkabench: %w", err), shut())
	}
	run := func(ctx context.Context) error { return a.Run(ctx, group, []string{j.log.Topic}) }
	return background(ctx, run, func() error { return errors.Join(group.Close(), shut()) }), nil
}

// redisOnly claims and completes the ids of the log in batches, with a goroutine per
// partition and no Kafka: the most that the store lets a consumer do.
func redisOnly(kind redisadapter.Layout) func(context.Context, job) (*member, error) {
	return func(ctx context.Context, j job) (*member, error) {
		opened := &harness.Setup{}
		d, err := work.Of(kind).Open(ctx, opened, j.redis, 0)
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		cycle := d.Batch([]dedup.Outcome{dedup.Acquired, dedup.Duplicate}, nil)
		run := func(ctx context.Context) error {
			all, ctx := errgroup.WithContext(ctx)
			for _, ids := range j.log.IDs {
				all.Go(func() error {
					for batch := range slices.Chunk(ids, work.Typical) { // the adapter's default
						if err := cycle(ctx, 0, batch); err != nil || ctx.Err() != nil {
							return err
						}
						j.done.add(len(batch))
					}
					return nil
				})
			}
			return all.Wait()
		}
		return background(ctx, run, opened.Close), nil
	}
}

const (
	slowTakes  = 20 * time.Millisecond
	slowNumber = 0 // of the partition whose messages take that long

	aloneSide  = "fast partition alone"
	besideSide = "fast partition next to a slow one"
)

// neighbors: a slow partition must not hold up a fast one.
func (e *env) neighbors() harness.Group {
	const title = "fast partition next to one whose messages take 20 ms"
	return harness.Group{Workload: "neighbors", Title: title,
		Open: func(_ context.Context, s *harness.Setup) error {
			// Two topics of two partitions: in the first the slow one is empty.
			alone := server.Log{Topic: "bench-" + harness.Fresh(), ValueSize: 100,
				Keys: keysPerPartition,
				IDs:  [][]string{nil, harness.FreshKeys(warm + e.messages + tail)}}
			beside := alone
			beside.Topic = "bench-" + harness.Fresh()
			beside.IDs = [][]string{slowNumber: harness.FreshKeys(20_000), 1: alone.IDs[1]}
			for name, log := range map[string]server.Log{aloneSide: alone, besideSide: beside} {
				s.Defer(func() error { return e.broker.Remove(log.Topic) })
				if err := e.broker.Write(log); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			s.Sides = []harness.Side{e.timed(side{aloneSide, fastOnly}, alone),
				e.timed(side{besideSide, fastOnly}, beside)}
			s.Pair(harness.Pair{Side: besideSide, Against: aloneSide, Metric: harness.Messages,
				Goal: harness.AtLeast(0.8, 0)},
				harness.Pair{Side: aloneSide, Metric: harness.Messages})
			return nil
		}}
}

// fastOnly is the adapter, of which only the fast partition's messages count. They count
// when they have been handled: a record does not say which partition it is of.
func fastOnly(ctx context.Context, j job) (*member, error) {
	handle := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Partition != slowNumber {
			j.done.add(1)
			return nil
		}
		timer := time.NewTimer(slowTakes)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return claimed(ctx, j, redisadapter.Rich, handle, dedup.Observer{})
}
