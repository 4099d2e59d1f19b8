package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/cmd/internal/demo/stream"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/dedup"
)

// WorkerCommand is the program's hidden command that runs worker.Main.
const WorkerCommand = "demo-worker"

// WorkerProcess returns the hidden command with which the demo starts its workers.
func WorkerProcess() *cli.Command {
	return &cli.Command{Use: WorkerCommand, Hidden: true,
		Run: func(_ context.Context, s *cli.Streams) error {
			return cli.Fail(worker.Main(s.In, s.Out, s.Err), nil)
		}}
}

// demo is one run of all compositions.
type demo struct {
	*Options
	out      io.Writer // for progress, and for the report unless that is JSON
	messages []stream.Message

	id     string   // part of the names of everything that this run creates
	kafka  []string // addresses of the embedded brokers
	redis  string   // address of the embedded Redis
	ledger string   // file

	url       string // of the console; empty without --listen
	observers map[worker.Composition]dedup.Observer

	closers []func()
}

// close ends the servers of a run and removes its files.
func (d *demo) close() {
	for _, f := range slices.Backward(d.closers) {
		f()
	}
}

// openBackends starts the embedded servers, and makes room for the ledger.
func (d *demo) openBackends() error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	d.closers = append(d.closers, cluster.Close)
	d.kafka = cluster.ListenAddrs()
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	d.closers = append(d.closers, m.Close, age(m))
	d.redis = m.Addr()
	dir, err := os.MkdirTemp("", "onceward-demo-")
	if err != nil {
		return fmt.Errorf("make room for the ledger: %w", err)
	}
	if !d.Keep {
		d.closers = append(d.closers, func() { _ = os.RemoveAll(dir) })
	}
	d.ledger = filepath.Join(dir, "ledger.db")
	return nil
}

// age lets the keys of m age in a goroutine, because miniredis has no clock of its own.
func age(m *miniredis.Miniredis) (stop func()) {
	ticker, stopped := time.NewTicker(10*time.Millisecond), make(chan struct{})
	go func() {
		last := time.Now()
		for {
			select {
			case now := <-ticker.C:
				m.FastForward(now.Sub(last))
				last = now
			case <-stopped:
				return
			}
		}
	}()
	return func() { ticker.Stop(); close(stopped) }
}

// run runs the demo. When ctx ends, it kills its workers, cleans up, and returns.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	d := &demo{Options: o, out: s.Out, id: strings.ToLower(rand.Text()[:8]),
		messages: stream.Make(stream.Payments(o.Messages, o.Seed), stream.Config{
			Seed: o.Seed, Partitions: partitions, Duplicates: o.Duplicates})}
	if o.JSON {
		d.out = s.Err
	}
	defer d.close()
	if err := d.openBackends(); err != nil {
		return err
	}
	if o.Listen != "" {
		if err := d.openPages(ctx); err != nil {
			return err
		}
	}
	columns, err := d.runAll(ctx)
	if err != nil {
		return cli.Fail(cli.No, err)
	}
	if o.JSON {
		if err := cli.WriteJSON(s.Out, results(columns)); err != nil {
			return err
		}
	} else {
		report(d.out, columns)
		if o.Keep {
			fmt.Fprintf(d.out, "The ledger is in %s, table %s.\n", d.ledger, ledger.Table)
		}
	}
	if d.url != "" {
		name := d.topicName(worker.Claimed) // of the topic, of its group and of the namespace
		fmt.Fprintf(d.out, "\nRecords are kept for %v. To ask for one: onceward inspect %s "+
			"--namespace %s --group %s --topic %s --redis redis://%s\n", worker.Window,
			d.messages[0].ID, name, name, name, d.redis)
		fmt.Fprintf(d.out, "The console stays at %s/ until you interrupt this (Ctrl-C).\n", d.url)
		<-ctx.Done()
	}
	if slices.ContainsFunc(columns, func(c column) bool { return !c.kept() }) {
		return cli.Fail(cli.No, nil)
	}
	return nil
}

// runAll runs the compositions one after another.
func (d *demo) runAll(ctx context.Context) (columns []column, err error) {
	fmt.Fprintf(d.out, "%d ids in %d messages over %d partitions, seed %d\n"+
		"Kafka: embedded (kfake, 3 brokers)   Redis: embedded (miniredis)   "+
		"ledger: embedded (SQLite)\n", d.Messages, len(d.messages), partitions, d.Seed)
	if d.url != "" {
		fmt.Fprintf(d.out, "Console: %s/   metrics for Prometheus: %s%s\n", d.url, d.url,
			metricsPath)
	}
	if len(schedule(d.Messages)) == 0 {
		fmt.Fprintln(d.out, "Note: so short a stream has no room for crashes.")
	}
	effects, err := ledger.Open(d.ledger)
	if err != nil {
		return nil, err
	}
	defer effects.Close() //nolint:errcheck // what counts has been read
	if err := effects.Create(ctx); err != nil {
		return nil, err
	}
	compositions := []worker.Composition{worker.Atomic, worker.Claimed}
	if d.Naive {
		compositions = append(compositions, worker.Naive)
	}
	for _, c := range compositions {
		col, err := d.runOne(ctx, c, effects)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", texts[c].title, err)
		}
		columns = append(columns, col)
	}
	return columns, nil
}

// runOne runs one composition on a topic of its own, and judges it.
func (d *demo) runOne(ctx context.Context, c worker.Composition, effects *ledger.Ledger) (
	col column, err error) {
	fmt.Fprintf(d.out, "\n%s: %s\n", texts[c].title, texts[c].explanation)
	topic := d.topicName(c)
	producer := newProducer(topic, d.messages, d.Takes)
	if err := producer.createTopic(ctx, d.kafka); err != nil {
		return col, err
	}
	defer producer.client.Close()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	meter := progress.Start(d.out, "effects", int64(d.Messages))
	defer meter.Stop()
	s := &supervisor{
		out: meter.Over(d.out), meter: meter, producer: producer,
		observer: d.observers[c], unique: d.Messages, steps: schedule(d.Messages),
		config: worker.Config{
			Composition: c, Kafka: d.kafka, Redis: []string{d.redis}, Ledger: d.ledger,
			Topic: topic, Lease: d.Lease, Fault: d.Break, Observe: d.url != "",
		},
	}
	if err := s.run(ctx); err != nil {
		return col, err
	}
	if s.unplaced > 0 {
		fmt.Fprintf(s.out, "  Note: %d crashes found no message to happen to.\n", s.unplaced)
	}
	counts, err := effects.Count(ctx, string(c))
	if err != nil {
		return col, err
	}
	s.event("every message is committed, the workers have left")
	return column{judge(c, d.messages, counts, s.tally.crashes), s.tally,
		time.Since(s.began)}, nil
}

// topicName is the name of the composition's topic, its group, and the namespace of its keys.
func (d *demo) topicName(c worker.Composition) string {
	return fmt.Sprintf("onceward-demo-%s-%s", d.id, c)
}
