package kafkabench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

const (
	slowTakes  = 20 * time.Millisecond
	slowNumber = 0 // of the partition whose messages take that long

	aloneSide = "fast partition alone"
	nextSide  = "fast partition next to a slow one"
)

// neighbors: a slow partition must not hold up a fast one.
func (e *env) neighbors() harness.Group {
	const title = "fast partition next to one whose messages take 20 ms"
	return harness.Group{Workload: "neighbors", Title: title,
		Open: func(_ context.Context, s *harness.Setup) {
			// Two topics of two partitions: in the first the slow one is empty.
			alone := e.newLog(100, [][]string{nil,
				harness.FreshKeys(e.warmUp(2) + e.messages + e.behind)})
			next := e.newLog(100, [][]string{slowNumber: harness.FreshKeys(e.behind),
				1: alone.IDs[1]})
			e.write(s, alone)
			e.write(s, next)
			s.Sides = []harness.Side{e.timed(side{aloneSide, fastOnly}, alone),
				e.timed(side{nextSide, fastOnly}, next)}
			s.Pair(harness.Pair{Side: nextSide, Against: aloneSide, Metric: harness.Messages,
				Goal: harness.AtLeast(0.8, 0)},
				harness.Pair{Side: aloneSide, Metric: harness.Messages})
		}}
}

// fastOnly is the adapter, of which only the fast partition's messages count. They count
// when they have been handled: a record does not say which partition it is of.
func fastOnly(ctx context.Context, j job) consumer {
	handle := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Partition != slowNumber {
			j.done.add(1)
			return nil
		}
		pause(ctx, slowTakes)
		return context.Cause(ctx)
	}
	return j.claimed(ctx, redisadapter.Rich, handle, dedup.Observer{})
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// every is how far apart messages are sent whose latency is measured.
const every = 10 * time.Millisecond

// latency: how long a message of a quiet topic takes from send to handler.
func (e *env) latency() harness.Group {
	const title = "4 partitions, 100 messages/s"
	return harness.Group{Workload: "latency", X: 100, Title: title,
		Open: func(_ context.Context, s *harness.Setup) {
			add := func(side, against string, goal harness.Goal) {
				s.Pair(harness.Pair{Name: title + ", p50 from send to handler", Side: side,
					Against: against, Metric: harness.P50, Goal: goal})
			}
			for _, l := range layouts[:2] {
				add(adapterSide(l.name), byHandSide, harness.AtMost(1.1, 0.9))
			}
			add(byHandSide, "", harness.Goal{})
			s.Pairs = e.chosen(s.Pairs)
			for _, one := range (point{partitions: 4}).sides() {
				if e.takesPart(one.name) && slices.ContainsFunc(s.Pairs, func(p harness.Pair) bool {
					return p.Side == one.name
				}) {
					s.Sides = append(s.Sides, harness.Side{Name: one.name,
						External: func(ctx context.Context) harness.Sample {
							return e.measureLatency(ctx, one)
						}})
				}
			}
		}}
}

// measureLatency sends messages while a side consumes them, and the first of each partition before
// those that count.
func (e *env) measureLatency(ctx context.Context, s side) (sample harness.Sample) {
	const partitions = 4
	n := max(20, int(5*e.budget/every)) / partitions
	ids := make([][]string, partitions)
	for i := range ids {
		ids[i] = harness.FreshKeys(n)
	}
	setup := &harness.Setup{}
	defer func() { must.Do(setup.Close()) }()
	log := e.newLog(100, make([][]string, partitions))
	e.write(setup, log)
	log.IDs = ids
	producer := e.broker.Producer(0)
	setup.Defer(producer.Close)
	times := newArrivals(partitions, n)
	e.consume(ctx, s, log, times.arrive,
		func(ctx context.Context, done *progress, failed <-chan error) {
			for i := range n {
				for partition := range partitions {
					times.send(partition, i)
					_, _, err := producer.SendMessage(log.Message(partition, i))
					must.Do(err)
					pause(ctx, every-time.Since(times.sent[partition][i]))
				}
				if i == 0 { // the group has formed
					done.await(ctx, partitions, failed)
				}
			}
			done.await(ctx, int64(log.Size()), failed)
		})
	sample.Rate = float64(time.Second / every)
	took := times.took()
	must.True(len(took) == partitions*(n-1), "kafkabench: %d latencies of %d messages", len(took),
		partitions*(n-1))
	sample.P50Micros = float64(harness.Percentile(took, 0.5)) / 1e3
	sample.P99Micros = float64(harness.Percentile(took, 0.99)) / 1e3
	return sample
}

// arrivals are the times of messages by partition and offset.
type arrivals struct {
	mu            sync.Mutex
	sent, handled [][]time.Time
}

func newArrivals(partitions, n int) *arrivals {
	a := &arrivals{}
	for range partitions {
		a.sent, a.handled = append(a.sent, make([]time.Time, n)),
			append(a.handled, make([]time.Time, n))
	}
	return a
}

func (a *arrivals) send(partition, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[partition][n] = time.Now()
}

func (a *arrivals) arrive(m *sarama.ConsumerMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handled[m.Partition][m.Offset] = time.Now()
}

// took are the sorted latencies of all but the first message of each partition.
func (a *arrivals) took() (all []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for partition, handled := range a.handled {
		for n, at := range handled[1:] {
			if !at.IsZero() {
				all = append(all, at.Sub(a.sent[partition][n+1]))
			}
		}
	}
	slices.Sort(all)
	return all
}

// newLog is of a topic of its own.
func (e *env) newLog(size int, ids [][]string) server.Log {
	return server.Log{Topic: "bench-" + harness.Fresh(), ValueSize: size, Keys: keysPerPartition,
		IDs: ids}
}

// write writes a log for the time of a setup.
func (e *env) write(s *harness.Setup, log server.Log) {
	s.Defer(func() error {
		if err := e.broker.Remove(log.Topic); err != nil {
			return fmt.Errorf("kafkabench: %s: %w", log.Topic, err)
		}
		return nil
	})
	e.broker.Write(log)
}
