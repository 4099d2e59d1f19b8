package worker

import (
	"bufio"
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
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	s := &sender{out: out}
	w := &worker{send: s.send, barrier: newBarrier()}
	if err := json.Unmarshal(line, &w.cfg); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if w.ledger, err = ledger.Open(w.cfg.Ledger); err != nil {
		return err
	}
	defer w.ledger.Close() //nolint:errcheck // nothing is buffered in it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.obey(lines, cancel)
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

// obey reads commands until the parent is gone. It ends only with the process, because a read of
// standard input cannot be canceled.
func (w *worker) obey(lines *bufio.Reader, cancel context.CancelFunc) {
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			cancel()
			time.AfterFunc(exitTime, func() { os.Exit(1) })
			return
		}
		var c Command
		if err := json.Unmarshal(line, &c); err == nil && (c.Arm != "" || c.Disarm) {
			w.barrier.arm(c.Arm)
		}
	}
}

// adapterConfig is what Atomic and Claimed have in common.
func (w *worker) adapterConfig(h kafkaadapter.Handler) kafkaadapter.Config {
	return kafkaadapter.Config{
		Handler:  h,
		Logger:   slog.New(slog.DiscardHandler), // the worker reports events instead
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond, RetryMax: time.Second},
		// The adapter claims the messages that it holds, and renews each claim three times per
		// lease. The demo has a short lease and an embedded Redis, so the adapter holds few
		// messages.
		Tuning: kafkaadapter.Tuning{Workers: 4, BatchMax: 32, HighWater: 128,
			Drain: 2 * time.Second},
		Observer: kafkaadapter.Observer{
			Delivered: w.delivered,
			Waiting:   func(m *kafkaadapter.Message) { w.send(Event{Kind: Waiting, ID: m.ID}) },
			Skipped: func(m *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
				w.send(Event{Kind: Skipped, ID: m.ID, Cause: cause})
			},
			GroupError: w.groupError,
		},
	}
}

func (w *worker) delivered(m *kafkaadapter.Message) {
	id, _ := kafkaadapter.DefaultID()(m)
	w.send(Event{Kind: Delivered, ID: id})
}

// consume runs the adapter until ctx ends.
func (w *worker) consume(ctx context.Context, cfg kafkaadapter.Config) error {
	metrics.UseNilMetrics = true // nobody reads sarama's metrics here
	c := saramaConfig(w.cfg.Session)
	client, err := sarama.NewClient(w.cfg.Kafka, c)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	a, err := kafkasarama.New(client, w.cfg.Group, cfg)
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

func (w *worker) groupError(err error) { w.send(Event{Kind: Warning, Text: err.Error()}) }

// row is the row in the ledger for the effect of a message.
func (w *worker) row(m *kafkaadapter.Message, id string) ledger.Row {
	return ledger.Row{ID: id, Worker: w.cfg.Name, Partition: m.Partition, Offset: m.Offset,
		Generation: w.generation.Load()}
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

// faulty reports whether the fault SkipEffect makes the worker leave this effect out.
func (w *worker) faulty() bool {
	return w.cfg.Fault == SkipEffect && w.effects.Add(1)%5 == 0
}
