package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// exitTime is how long a worker may take to leave after its parent is gone.
const exitTime = 3 * time.Second

// worker is what all compositions share.
type worker struct {
	cfg        Config
	send       func(Event)
	barrier    *barrier
	ledger     *ledger.Ledger
	generation atomic.Int32
	effects    atomic.Int64
}

// Main runs a worker on the standard streams and returns the exit code of its process: 0 after
// SIGTERM, or 1 with a line on errOut if it could not continue.
func Main(in io.Reader, out, errOut io.Writer) int {
	// A terminal sends its interrupt to the whole process group, but only the parent decides.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, in, out); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	input := json.NewDecoder(in)
	w := &worker{send: sender(out), barrier: newBarrier()}
	err := input.Decode(&w.cfg)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if w.ledger, err = ledger.Open(w.cfg.Ledger); err != nil {
		return err
	}
	defer w.ledger.Close() //nolint:errcheck // nothing is buffered in it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.obey(input, cancel)
	switch w.cfg.Composition {
	case Atomic:
		return w.runAtomic(ctx)
	case Claimed:
		return w.runClaimed(ctx)
	case Naive:
		return w.runNaive(ctx)
	}
	return fmt.Errorf("unknown composition %q", w.cfg.Composition)
}

// obey reads points until the parent is gone. It ends only with the process, because a read of
// standard input cannot be canceled.
func (w *worker) obey(input *json.Decoder, cancel context.CancelFunc) {
	for {
		var p Point
		if input.Decode(&p) != nil {
			cancel()
			time.AfterFunc(exitTime, func() { os.Exit(1) })
			return
		}
		w.barrier.arm(p)
	}
}

// consume runs the adapter until ctx ends. Without a Deduper the handler records the messages.
func (w *worker) consume(ctx context.Context, d *dedup.Deduper, h kafkaadapter.Handler) error {
	c := saramaConfig()
	client, err := sarama.NewClient(w.cfg.Kafka, c)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	a, err := kafkasarama.New(client, w.cfg.Topic, kafkaadapter.Config{
		Deduper: d, Unclaimed: d == nil, Handler: h,
		Logger:   slog.New(slog.DiscardHandler), // the worker reports events instead
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond, RetryMax: time.Second},
		// The adapter claims the messages that it holds, and renews each claim three times per
		// lease. The demo has a short lease and an embedded Redis, so the adapter holds few
		// messages.
		Tuning: kafkaadapter.Tuning{Workers: 4, BatchMax: 32, HighWater: 128,
			Drain: 2 * time.Second},
		Observer: kafkaadapter.Observer{
			Assigned:  w.assigned,
			Delivered: func(m *kafkaadapter.Message) { w.delivered(m) },
			Waiting:   func(m *kafkaadapter.Message) { w.send(Event{Kind: Waiting, ID: m.ID}) },
			Skipped: func(m *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
				w.send(Event{Kind: Skipped, ID: m.ID, Cause: cause})
			},
			GroupError: w.warn,
		},
	})
	if err != nil {
		return err
	}
	if err := a.CheckConfig(c); err != nil {
		return err
	}
	group, err := w.openGroup(c)
	if err != nil {
		return err
	}
	return errors.Join(a.Run(ctx, group, []string{w.cfg.Topic}), group.Close())
}

// saramaConfig is SafeConfig with the short times of a demo.
func saramaConfig() *sarama.Config {
	metrics.UseNilMetrics = true // nobody reads sarama's metrics here
	c := kafkasarama.SafeConfig(nil)
	c.ClientID = "onceward-demo"
	c.Consumer.Group.Session.Timeout = Session
	c.Consumer.Group.Heartbeat.Interval = Session / 5
	c.ChannelBufferSize = 32           // fetched messages are taken in even if paused
	c.Consumer.Fetch.Default = 8 << 10 // bytes; about fifty messages
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
	c.Consumer.Retry.Backoff = 200 * time.Millisecond
	c.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	// A join cannot be canceled. The coordinator holds it until every member has joined or this
	// time has passed. A worker that is told to leave must wait that long.
	c.Consumer.Group.Rebalance.Timeout = 6 * time.Second
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	return c
}

// openGroup makes the group; it joins when Consume is called.
func (w *worker) openGroup(c *sarama.Config) (sarama.ConsumerGroup, error) {
	group, err := sarama.NewConsumerGroup(w.cfg.Kafka, w.cfg.Topic, c)
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", w.cfg.Topic, err)
	}
	return group, nil
}

// assigned reports a partition that this worker has in a generation of the group.
func (w *worker) assigned(_ string, _, generation int32) {
	w.generation.Store(generation)
	w.send(Event{Kind: Assigned, Generation: generation})
}

// delivered reports a message that came from the broker, and returns its id.
func (w *worker) delivered(m *kafkaadapter.Message) string {
	id, _ := kafkaadapter.DefaultID()(m)
	w.send(Event{Kind: Delivered, ID: id})
	return id
}

func (w *worker) warn(err error) { w.send(Event{Kind: Warning, Text: err.Error()}) }

// duplicate reports a duplicate with its cause, which it finds in the effect of the first message.
// It checks causes in the order of a Deduper. The Atomic and Naive compositions keep no origin, but
// the ledger does.
func (w *worker) duplicate(ctx context.Context, q ledger.Queryer, m *kafkaadapter.Message) (
	driver.Cause, error) {
	first, ok, err := ledger.First(ctx, q, string(w.cfg.Composition), m.ID)
	if err != nil {
		return "", err
	}
	cause := driver.BrokerRedelivery
	switch {
	case !ok || first.Partition != m.Partition || first.Offset != m.Offset:
		cause = driver.ProducerRetry
	case first.Generation != w.generation.Load():
		cause = driver.RebalanceReplay
	}
	w.send(Event{Kind: Skipped, ID: m.ID, Cause: cause})
	return cause, nil
}

// effect adds the effect of a message to the ledger and commits it, if commit is not nil. If the
// handler is a victim, the parent kills it before or after that.
func (w *worker) effect(ctx context.Context, q ledger.Queryer, m *kafkaadapter.Message,
	victim Point, commit func() error) error {
	w.stand(victim, BeforeEffect, m.ID)
	// The Naive composition promises nothing, so it is never broken on purpose.
	if w.cfg.Fault != SkipEffect || w.cfg.Composition == Naive || w.effects.Add(1)%5 != 0 {
		if err := ledger.Append(ctx, q, string(w.cfg.Composition), ledger.Row{ID: m.ID,
			Worker: w.cfg.Name, Partition: m.Partition, Offset: m.Offset,
			Generation: w.generation.Load()}); err != nil {
			return err
		}
	}
	if commit != nil {
		if err := commit(); err != nil {
			return err
		}
	}
	w.send(Event{Kind: Effected, ID: m.ID})
	w.stand(victim, AfterEffect, m.ID)
	return nil
}

// stand is called when the handler of id is at the point at. If that is point, this handler is the
// victim: stand reports the point to the parent, and waits until the process is killed. Any other
// handler continues.
func (w *worker) stand(at, point Point, id string) {
	if at != point {
		return
	}
	w.send(Event{Kind: Reached, Point: point, ID: id})
	select {}
}
