package kafkabench

import (
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

type env struct {
	redis    *server.Redis
	broker   *server.Broker
	meter    harness.Meter
	budget   time.Duration // of one timing
	messages int           // most of one timing
	ahead    int           // messages before those that are timed, at least
	behind   int           // messages of the log that are left when a timing ends
	gap      int           // how far at least a duplicate lies behind its original
}

const (
	warm  = 4000   // env.ahead of a run: connections, groups, pools and pipelines are as they stay
	tail  = 20_000 // env.behind of a run: no partition runs dry before its neighbors
	far   = 1024   // env.gap of a run: more than the adapter has claimed of a partition
	least = 2000   // messages of a timing
)

// side is one way of consuming a log.
type side struct {
	name  string
	start func(ctx context.Context, j job) consumer
}

// consumer works until its context ends or there is nothing left.
type consumer func(context.Context) error

// job is what a consumer is to do: consume log once, and count in done what is finished.
type job struct {
	*harness.Setup // what is opened for it

	brokers []string
	redis   string // host:port
	group   string // of consumers; fresh for every timing
	log     server.Log
	done    *atomic.Int64
	effect  func(*sarama.ConsumerMessage)
}

func noEffect(*sarama.ConsumerMessage) {}

// timed is a side of the harness. What is timed lies between two moments of one steady run: the end
// of the warm-up, and that of the last message that counts: of as many as the last rate suggests.
func (e *env) timed(s side, log server.Log) harness.Side {
	fewest := min(least, e.messages)
	n := fewest
	return harness.Side{Name: s.name, External: func(ctx context.Context) (sample harness.Sample) {
		e.consume(ctx, s, log, noEffect, func(ctx context.Context, done *atomic.Int64) {
			await(ctx, done, e.warmUp(len(log.IDs)))
			sample = e.meter.Measure(ctx, func() int {
				from := int(done.Load())
				await(ctx, done, min(from+n, log.Size()))
				finished := int(done.Load()) - from
				must.True(finished > 0, "kafkabench: the log ended while the clocks were read")
				return finished
			})
		})
		n = max(fewest, min(int(sample.Rate*e.budget.Seconds()), e.messages))
		return sample
	}}
}

// consume runs a side over a log on an empty Redis, and measures meanwhile.
func (e *env) consume(ctx context.Context, s side, log server.Log,
	effect func(*sarama.ConsumerMessage), measure func(ctx context.Context, done *atomic.Int64)) {
	e.redis.Clear(ctx)
	runtime.GC() // the garbage of one side is not the next one's burden
	j := job{Setup: &harness.Setup{}, brokers: e.broker.Addrs, redis: e.redis.Addr,
		group: "bench-" + harness.Fresh(), log: log, done: &atomic.Int64{}, effect: effect}
	var err error
	// A profile shows by this label whose work it was: goroutines inherit it.
	pprof.Do(ctx, pprof.Labels("side", s.name), func(ctx context.Context) {
		err = must.Try(func() {
			run := s.start(ctx, j)
			consumers, running := errgroup.WithContext(ctx) // one that fails ends the measurement
			running, stop := context.WithCancel(running)
			consumers.Go(func() error { return run(running) })
			defer func() { stop(); _ = consumers.Wait() }()
			measure(running, j.done)
		})
	})
	must.Do(errors.Join(err, j.Close()))
}

// warmUp is how many messages of a log go before those that are timed: the first of every
// partition are no duplicates.
func (e *env) warmUp(partitions int) int { return max(e.ahead, partitions*e.gap) }

// await waits until n messages are finished, as long as the consumer works.
func await(ctx context.Context, done *atomic.Int64, n int) {
	work.Until(ctx, func(int) bool { return done.Load() >= int64(n) })
}

const (
	slowTakes  = 20 * time.Millisecond
	slowNumber = 0 // of the partition whose messages take that long

	aloneSide = "fast partition alone"
	nextSide  = "fast partition next to a slow one"
)

// neighbors: a slow partition must not hold up a fast one.
func (e *env) neighbors(all *harness.Groups) {
	const title = "fast partition next to one whose messages take 20 ms"
	all.Add("neighbors", 0, title, func(ctx context.Context, s *harness.Setup) {
		// Two topics of two partitions: in the first the slow one is empty.
		fast := harness.FreshKeys(e.warmUp(2) + e.messages + e.behind)
		add := func(name string, slow []string) {
			log := e.newLog(100, [][]string{slowNumber: slow, 1: fast})
			e.write(ctx, s, log)
			s.Sides = append(s.Sides, e.timed(side{name, fastOnly}, log))
		}
		add(aloneSide, nil)
		add(nextSide, harness.FreshKeys(e.behind))
		s.Metric = harness.Messages
		s.Compare(nextSide, aloneSide).Wants(">= 0.8x")
		s.Compare(aloneSide, "")
	})
}

// fastOnly is the adapter, of which only the fast partition's messages count, once handled.
func fastOnly(ctx context.Context, j job) consumer {
	handle := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Partition != slowNumber {
			j.done.Add(1)
			return nil
		}
		return backoff.Sleep(ctx, slowTakes)
	}
	return j.claimed(ctx, work.Full, handle, dedup.Observer{})
}

// every is how far apart messages are sent whose latency is measured.
const every = 10 * time.Millisecond

// latency: how long a message of a quiet topic takes from send to handler.
func (e *env) latency(all *harness.Groups) {
	const title = "4 partitions, 100 messages/s"
	all.Add("latency", 100, title, func(_ context.Context, s *harness.Setup) {
		add := func(side, against string) *harness.Pair {
			return s.Compare(side, against).Called(title + ", p50 from send to handler").
				In(harness.P50)
		}
		add(adapterSide(layouts[0].name), byHandSide).Wants("<= 1.1x (stretch 0.9x)")
		add(byHandSide, "")
		for _, one := range (point{partitions: 4}).sides() {
			compared := func(p harness.Pair) bool { return p.Side == one.name }
			if slices.ContainsFunc(s.Pairs, compared) {
				s.External(one.name, func(ctx context.Context) harness.Sample {
					return e.measureLatency(ctx, one)
				})
			}
		}
	})
}

// measureLatency sends messages while a side consumes them, and the first of each partition before
// those that count.
func (e *env) measureLatency(ctx context.Context, s side) (sample harness.Sample) {
	const partitions = 4
	n := max(20, int(5*e.budget/every)) / partitions
	setup := &harness.Setup{}
	defer func() { must.Do(setup.Close()) }()
	log := e.newLog(100, make([][]string, partitions))
	e.write(ctx, setup, log)
	for i := range log.IDs {
		log.IDs[i] = harness.FreshKeys(n)
	}
	producer := e.broker.Client(0)
	defer producer.Close()
	var mu sync.Mutex
	var sent [partitions][]time.Time // by offset
	var took []time.Duration
	arrive := func(m *sarama.ConsumerMessage) {
		mu.Lock()
		defer mu.Unlock()
		if m.Offset > 0 {
			took = append(took, time.Since(sent[m.Partition][m.Offset]))
		}
	}
	send := func(partition, i int) {
		mu.Lock()
		began := time.Now()
		sent[partition] = append(sent[partition], began)
		mu.Unlock()
		must.Do(producer.ProduceSync(ctx, log.Message(partition, i)).FirstErr())
		must.Do(backoff.Sleep(ctx, every-time.Since(began)))
	}
	e.consume(ctx, s, log, arrive,
		func(ctx context.Context, done *atomic.Int64) {
			for i := range partitions * n {
				send(i%partitions, i/partitions)
				if i == partitions-1 { // the group has formed
					await(ctx, done, partitions)
				}
			}
			await(ctx, done, log.Size())
		})
	want := partitions * (n - 1)
	must.True(len(took) == want, "kafkabench: %d latencies of %d messages", len(took), want)
	sample.Rate = float64(time.Second / every)
	sample.P50Micros, sample.P99Micros = harness.Percentiles(took)
	return sample
}

func (e *env) newLog(size int, ids [][]string) server.Log {
	return server.Log{Topic: "bench-" + harness.Fresh(), ValueSize: size, Keys: 1000, IDs: ids}
}

func (e *env) write(ctx context.Context, s *harness.Setup, log server.Log) {
	s.Defer(func() error { return e.broker.Remove(context.WithoutCancel(ctx), log.Topic) })
	e.broker.Write(ctx, log)
}
