package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/bench/internal/broker"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

const (
	slowTakes  = 20 * time.Millisecond
	slowNumber = 0 // of the partition whose messages take that long

	aloneSide  = "fast partition alone"
	besideSide = "fast partition beside a slow one"
)

// neighbours: a slow partition must not hold up a fast one.
func (e *Env) neighbours() harness.Group {
	const title = "fast partition beside one whose messages take 20 ms"
	return harness.Group{Workload: "neighbours", Title: title, Open: func(ctx context.Context) (harness.Setup, error) {
		alone, beside := e.pairOfLogs()
		remove := func() { _, _ = e.Broker.Remove(alone.Topic), e.Broker.Remove(beside.Topic) }
		if err := errors.Join(e.Broker.Write(alone), e.Broker.Write(beside)); err != nil {
			remove()
			return harness.Setup{}, err
		}
		return harness.Setup{
			Sides: []harness.Side{e.timed(side{aloneSide, fastOnly}, alone), e.timed(side{besideSide, fastOnly}, beside)},
			Pairs: []harness.Pair{
				{Name: title, Side: besideSide, Against: aloneSide, Metric: harness.Messages, Goal: harness.AtLeast(0.8, 0)},
				{Name: title, Side: aloneSide, Metric: harness.Messages},
			},
			Close: remove,
		}, context.Cause(ctx)
	}}
}

// pairOfLogs are two topics of two partitions: in the first the slow one is empty.
func (e *Env) pairOfLogs() (alone, beside broker.Log) {
	fast, slow := warm+e.Messages+tail, 20_000
	alone = broker.Log{Topic: "bench-" + harness.FreshKeys(1)[0], ValueSize: 100, Keys: keysPerPartition, IDs: [][]string{nil, harness.FreshKeys(fast)}}
	beside = alone
	beside.Topic = "bench-" + harness.FreshKeys(1)[0]
	beside.IDs = [][]string{slowNumber: harness.FreshKeys(slow), 1: alone.IDs[1]}
	return alone, beside
}

// fastOnly is the adapter, of which only the fast partition's messages count. They count
// when they have been handled: a record does not tell of which partition it is.
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
