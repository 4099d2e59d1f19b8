package kafkabench

import (
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

// env is where the workloads run.
type env struct {
	redis    *server.Redis
	broker   *server.Broker
	meter    harness.Meter
	budget   time.Duration          // of one timing
	messages int                    // most of one timing
	choose   func(side string) bool // which sides take part, by name; nil: all
}

// measureCPU has the servers' CPU measured where they are processes of their own.
func (e *env) measureCPU() {
	e.meter = harness.Meter{ServerCPU: e.redis.CPU(), BrokerCPU: e.broker.CPU()}
}

// side is one way of consuming a log. A further consumer, of another client or another
// store, needs a function that starts it and a line in [point.sides].
type side struct {
	name  string
	start func(ctx context.Context, j job) (*member, error)
}

// job is what a consumer is to do: consume log once, and count in done what is finished.
type job struct {
	brokers []string
	redis   string // host:port
	group   string // of consumers; fresh for every timing
	log     server.Log
	done    *progress
}

// member is a running consumer.
type member struct {
	failed <-chan error // gets the error when it ends by itself
	stop   func() error // ends it and waits for it
}

// background makes a member of run, which works until its context ends or there is nothing
// left. shut runs after it.
func background(ctx context.Context, run func(context.Context) error, shut func() error) *member {
	ctx, cancel := context.WithCancel(ctx)
	failed, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			failed <- err
		}
	}()
	return &member{failed: failed, stop: func() error {
		cancel()
		<-ended
		return shut()
	}}
}

const (
	// warm is how many messages go at least before those that are timed: connections, groups,
	// pools and pipelines are as they stay then.
	warm = 4000
	// tail is how many of the log's messages are left when a timing ends, so that no
	// partition has run dry and its neighbors' work looks better or worse than it is.
	tail = 20_000
	// least is the smallest number of messages that is timed.
	least = 2000
)

// timed is a side of the harness. What is timed lies between two moments of one steady
// run: the end of the warm-up, and the end of the last message that counts. How many
// messages count follows the rate that the side had the last time.
func (e *env) timed(s side, log server.Log) harness.Side {
	n := least
	return harness.Side{Name: s.name, External: func(ctx context.Context) (harness.Sample, error) {
		sample, err := e.measure(ctx, s, log, n)
		n = max(least, min(int(sample.Rate*e.budget.Seconds()), e.messages))
		return sample, err
	}}
}

func (e *env) measure(ctx context.Context, s side, log server.Log, n int) (sample harness.Sample,
	err error) {
	if e.redis.Own {
		if err := e.redis.Empty(ctx); err != nil {
			return sample, err
		}
	}
	runtime.GC() // the garbage of one side is not the next one's burden
	j := job{brokers: e.broker.Addrs, redis: e.redis.Addr, group: "bench-" + harness.Fresh(),
		log: log, done: newProgress()}
	// The label tells in a profile whose work it was: goroutines inherit it.
	pprof.Do(ctx, pprof.Labels("side", s.name), func(ctx context.Context) {
		var m *member
		if m, err = s.start(ctx, j); err != nil {
			return
		}
		sample, err = e.between(ctx, j, m, n)
		err = errors.Join(err, m.stop())
	})
	return sample, err
}

// between reads the clocks twice.
func (e *env) between(ctx context.Context, j job, m *member, n int) (sample harness.Sample,
	err error) {
	done := j.done
	if err := done.await(ctx, int64(warmUp(len(j.log.IDs))), m.failed); err != nil {
		return sample, err
	}
	before, err := e.meter.Read(ctx)
	if err != nil {
		return sample, err
	}
	from := done.n.Load()
	if err := done.await(ctx, min(from+int64(n), int64(j.log.Size())), m.failed); err != nil {
		return sample, err
	}
	finished := done.n.Load() - from
	after, err := e.meter.Read(ctx)
	if err != nil {
		return sample, err
	}
	return before.To(after, int(finished)), nil
}

// warmUp is how many messages of a log go before those that are timed: the first of every
// partition are no duplicates.
func warmUp(partitions int) int { return max(warm, partitions*gap) }
