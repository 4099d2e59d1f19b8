// Package kafkabench holds the Kafka benchmarks: ways of consuming a topic, each next to its
// limits. suite.go has the workloads, their goals and the timing; consumers.go has the consumers.
package kafkabench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
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

// Suite measures the Kafka adapter.
var Suite = harness.Suite{
	Area: "kafka", About: "the Kafka adapter next to what binds it",
	Full:  harness.Scale{Rounds: 5, Keys: 120_000, Budget: 400 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 120_000, Budget: 150 * time.Millisecond},
	Open:  openSuite,
}

func openSuite(ctx context.Context, o harness.Options, b *harness.Bench) {
	e := &env{budget: o.Budget, messages: o.Keys, ahead: warm, behind: tail, gap: far}
	b.Modules = []string{"go-redis", "sarama", "kfake"}
	b.Groups = e.groups()
	if o.List {
		return
	}
	e.redis = server.Open(ctx, b, o.Redis)
	if o.Brokers != "" {
		e.broker = server.ConnectBroker(strings.Split(o.Brokers, ",")...)
	} else { // this program in another process: so its CPU is counted separately
		e.broker = must.Get(server.StartBroker(ctx, must.Get(os.Executable()), server.BrokerArg))
	}
	b.Servers = append(b.Servers, &e.broker.Server)
	b.Defer(e.broker.Close)
	e.meter = harness.Meter{ServerCPU: e.redis.CPU(), BrokerCPU: e.broker.CPU()}
}

const (
	bareSide      = "bare sarama loop"
	naiveSide     = "naive SET NX, effect, SET"
	byHandSide    = "by hand, in pipelines of 256"
	unclaimedSide = "adapter, unclaimed"
)

func redisSide(l work.Layout) string { return "Redis batches, " + shortName(l) }

func adapterSide(l work.Layout) string { return "adapter, " + shortName(l) }

func shortName(l work.Layout) string { return strings.TrimPrefix(l.Name, "onceward ") }

type point struct {
	partitions, value, share int // share: percent of duplicates
}

func (p point) title() string {
	return fmt.Sprintf("%d partitions, %d B, %d %% duplicates", p.partitions, p.value, p.share)
}

// central reports whether this is the point with the most comparisons; a quick run includes it.
func (p point) central() bool { return p == point{partitions: 4, value: 100} }

// layouts are the layouts that are measured: a fast one at every point, and the smallest one only
// where little else runs.
func (p point) layouts() []work.Layout {
	if p.central() {
		return work.Layouts
	}
	return []work.Layout{work.Full}
}

// points combines all shares of duplicates with 100 B, and no duplicates with 1 kB: the size of the
// value only changes what a new message costs.
func points() (all []point) {
	for _, partitions := range []int{4, 16} {
		for _, share := range []int{0, 10, 50, 90} {
			all = append(all, point{partitions, 100, share})
		}
		all = append(all, point{partitions, 1000, 0})
	}
	return all
}

func (e *env) groups() (all harness.Groups) {
	for _, p := range points() {
		detail := p.share == 10 || p.share == 90 || p.partitions == 16 && p != point{16, 100, 0}
		all.Add(fmt.Sprintf("%d partitions, %d B", p.partitions, p.value), p.share, p.title(),
			func(ctx context.Context, s *harness.Setup) {
				log := e.log(p)
				e.broker.Write(ctx, s, log)
				p.compare(s)
				for _, one := range p.sides() {
					s.Sides = append(s.Sides, e.timed(one, log))
				}
			}).Detail = detail
	}
	e.neighbors(&all)
	e.latency(&all)
	return all
}

// sides returns the sides of a point. A new consumer needs a line here and one in compare.
func (p point) sides() []side {
	sides := []side{{bareSide, bare}, {naiveSide, naive}, {byHandSide, byHand},
		{unclaimedSide, unclaimed}}
	for _, l := range p.layouts() {
		sides = append(sides, side{redisSide(l), redisOnly(l)}, side{adapterSide(l), adapter(l)})
	}
	return sides
}

func (p point) compare(s *harness.Setup) {
	s.Metric = harness.Messages
	for _, l := range p.layouts() {
		goals := p.central() && l == work.Full // compared with loops that are written by hand
		ours := adapterSide(l)
		s.Compare(ours, bareSide).Wants(">= 0.8x (stretch 0.9x)").Or = redisSide(l)
		s.Compare(ours, naiveSide).Wants(harness.When(goals, ">= 6x (stretch 9x)"))
		s.Compare(ours, byHandSide).Wants(harness.When(goals, ">= 0.65x (stretch 0.8x)"))
		if goals {
			s.Compare(ours, byHandSide).Called(p.title() + ", client CPU").In(harness.ClientMicros).
				Wants("<= 5.5 us (stretch 4.5 us)")
		}
		s.Compare(redisSide(l), "")
	}
	s.Compare(unclaimedSide, bareSide)
	for _, side := range []string{bareSide, naiveSide, byHandSide} {
		s.Compare(side, "")
	}
}

func (e *env) log(p point) server.Log {
	size := e.warmUp(p.partitions) + e.messages + e.behind
	ids := make([][]string, p.partitions)
	for i := range ids {
		ids[i] = harness.Recent(size/p.partitions, p.share, e.gap)
	}
	return e.newLog(p.value, ids)
}

type env struct {
	redis    *server.Redis
	broker   *server.Broker
	meter    harness.Meter
	budget   time.Duration // of one timing
	messages int           // most of one timing
	ahead    int           // messages before the timed ones, at least
	behind   int           // messages of the log that are left when a timing ends
	gap      int           // least distance between a duplicate and its original
}

const (
	warm  = 4000   // env.ahead of a run: then connections, groups, pools and pipelines are steady
	tail  = 20_000 // env.behind of a run: no partition runs dry before the others
	far   = 1024   // env.gap of a run: more messages than the adapter claims ahead in a partition
	least = 2000   // messages of a timing
)

type side struct {
	name  string
	start func(ctx context.Context, j job) consumer
}

// consumer works until its context ends or nothing is left.
type consumer func(context.Context) error

// job says what a consumer has to do: consume log once, and count finished messages in done.
type job struct {
	*harness.Setup // of this job

	brokers []string
	redis   string // host:port
	group   string // of consumers; a new one for every timing
	log     server.Log
	done    *atomic.Int64
	effect  func(*sarama.ConsumerMessage)
}

func noEffect(*sarama.ConsumerMessage) {}

// timed makes a side for the harness. It times a part of one steady run: from the end of the
// warm-up, as many messages as fill the budget at the last rate.
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
	runtime.GC() // the garbage of one side must not slow down the next
	j := job{Setup: &harness.Setup{}, brokers: e.broker.Addrs, redis: e.redis.Addr,
		group: "bench-" + harness.Fresh(), log: log, done: &atomic.Int64{}, effect: effect}
	var err error
	// The label shows in a profile which side did the work: goroutines inherit it.
	pprof.Do(ctx, pprof.Labels("side", s.name), func(ctx context.Context) {
		err = must.Try(func() {
			run := s.start(ctx, j)
			consumers, running := errgroup.WithContext(ctx) // a failure ends the measurement
			running, stop := context.WithCancel(running)
			consumers.Go(func() error { return run(running) })
			defer func() { stop(); _ = consumers.Wait() }()
			measure(running, j.done)
		})
	})
	must.Do(errors.Join(err, j.Close()))
}

// warmUp is how many messages of a log come before the timed ones. The first messages of every
// partition are new.
func (e *env) warmUp(partitions int) int { return max(e.ahead, partitions*e.gap) }

func await(ctx context.Context, done *atomic.Int64, n int) {
	work.Until(ctx, func(int) bool { return done.Load() >= int64(n) })
}

const (
	slowTakes  = 20 * time.Millisecond
	slowNumber = 0 // the partition whose messages take that long

	aloneSide = "fast partition alone"
	nextSide  = "fast partition next to a slow one"
)

// neighbors adds the workload in which a slow partition must not slow down a fast one.
func (e *env) neighbors(all *harness.Groups) {
	const title = "fast partition next to one whose messages take 20 ms"
	all.Add("neighbors", 0, title, func(ctx context.Context, s *harness.Setup) {
		// There are two topics with two partitions each. In the first topic the slow partition is
		// empty.
		fast := harness.FreshKeys(e.warmUp(2) + e.messages + e.behind)
		add := func(name string, slow []string) {
			log := e.newLog(100, [][]string{slowNumber: slow, 1: fast})
			e.broker.Write(ctx, s, log)
			s.Sides = append(s.Sides, e.timed(side{name, fastOnly}, log))
		}
		add(aloneSide, nil)
		add(nextSide, harness.FreshKeys(e.behind))
		s.Metric = harness.Messages
		s.Compare(nextSide, aloneSide).Wants(">= 0.8x")
		s.Compare(aloneSide, "")
	})
}

// fastOnly is the adapter, but only messages of the fast partition count, once they are handled.
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

// latency adds how long a message of a quiet topic takes from send to handler.
func (e *env) latency(all *harness.Groups) {
	const title = "4 partitions, 100 messages/s"
	all.Add("latency", 100, title, func(_ context.Context, s *harness.Setup) {
		add := func(side, against string) *harness.Pair {
			return s.Compare(side, against).Called(title + ", p50 from send to handler").
				In(harness.P50)
		}
		ours := side{adapterSide(work.Full), adapter(work.Full)}
		add(ours.name, byHandSide).Wants("<= 1.1x (stretch 0.9x)")
		add(byHandSide, "")
		for _, one := range []side{{byHandSide, byHand}, ours} {
			s.External(one.name, func(ctx context.Context) harness.Sample {
				return e.measureLatency(ctx, one)
			})
		}
	})
}

// measureLatency sends messages while a side consumes them. It first sends one message to each
// partition, which does not count.
func (e *env) measureLatency(ctx context.Context, s side) (sample harness.Sample) {
	const partitions, every = 4, 10 * time.Millisecond
	n := max(20, int(5*e.budget/every)) / partitions
	setup := &harness.Setup{}
	defer func() { must.Do(setup.Close()) }()
	log := e.newLog(100, make([][]string, partitions))
	e.broker.Write(ctx, setup, log)
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
	e.consume(ctx, s, log, arrive, func(ctx context.Context, done *atomic.Int64) {
		for i := range partitions * n {
			send(i%partitions, i/partitions)
			if i == partitions-1 { // now the group has formed
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
