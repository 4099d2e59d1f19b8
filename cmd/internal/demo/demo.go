package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/cmd/internal/demo/stream"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/dedup"
)

// WorkerCommand is the program's hidden command that runs worker.Main.
const WorkerCommand = "demo-worker"

// window is how long records are kept: longer than any run.
const window = 10 * time.Minute

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
	exe      string
	say      *output
	records  []stream.Record
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

// output writes lines, above the bar while a composition runs.
type output struct {
	out   io.Writer
	meter *progress.Meter
}

func (o *output) line(format string, args ...any) {
	fmt.Fprintf(o.meter.Over(o.out), format+"\n", args...)
}

// run runs the demo. When ctx ends, it kills its workers, cleans up, and returns.
func (o *Options) run(ctx context.Context, s *cli.Streams) (err error) {
	d := &demo{Options: o, say: &output{out: s.Out}, records: stream.Payments(o.Messages, o.Seed)}
	if o.JSON {
		d.say.out = s.Err
	}
	d.messages = stream.Make(d.records, stream.Config{
		Seed: o.Seed, Partitions: partitions, Duplicates: o.Duplicates,
	})
	if d.exe, err = os.Executable(); err != nil {
		return err
	}
	d.id = strings.ToLower(rand.Text()[:8])
	defer d.close()
	for _, open := range []func() error{d.openKafka, d.openRedis, d.openLedger} {
		if err := open(); err != nil {
			return err
		}
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
	if err := d.report(columns, s); err != nil {
		return err
	}
	if d.url != "" {
		name := d.topicName(worker.Claimed) // of the topic, of its group and of the namespace
		d.say.line("\nRecords are kept for %v. To ask for one: onceward inspect %s --namespace %s "+
			"--group %s --topic %s --redis redis://%s", window, d.records[0].ID, name, name, name,
			d.redis)
		d.say.line("The console stays at %s/ until you interrupt this (Ctrl-C).", d.url)
		<-ctx.Done()
	}
	if slices.ContainsFunc(columns, func(c column) bool { return !c.kept() }) {
		return cli.Fail(cli.No, nil)
	}
	return nil
}

// runAll runs the compositions one after another.
func (d *demo) runAll(ctx context.Context) (columns []column, err error) {
	d.head()
	effects, err := ledger.Open(d.ledger)
	if err != nil {
		return nil, err
	}
	defer effects.Close() //nolint:errcheck // what counts has been read
	if err := createLedger(ctx, effects); err != nil {
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

func createLedger(ctx context.Context, effects *ledger.Ledger) error {
	if err := effects.Create(ctx); err != nil {
		return err
	}
	marks, err := ledger.Marks(string(worker.Atomic))
	if err != nil {
		return err
	}
	return marks.Migrate(ctx, effects.DB)
}

func (d *demo) head() {
	d.say.line("%d ids in %d messages over %d partitions, seed %d", d.Messages,
		len(d.messages), partitions, d.Seed)
	d.say.line("Kafka: embedded (kfake, 3 brokers)   Redis: embedded (miniredis)   " +
		"ledger: embedded (SQLite)")
	if d.url != "" {
		d.say.line("Console: %s/   metrics for Prometheus: %s%s", d.url, d.url, metricsPath)
	}
	if len(schedule(d.Messages)) == 0 {
		d.say.line("Note: so short a stream has no room for crashes.")
	}
}

// runOne runs one composition on a topic of its own, and judges it.
func (d *demo) runOne(ctx context.Context, c worker.Composition, effects *ledger.Ledger) (
	col column, err error) {
	d.say.line("\n%s: %s", texts[c].title, texts[c].explanation)
	name := d.topicName(c)
	producer := newProducer(name, d.messages, d.Takes)
	if err := producer.createTopic(ctx, d.kafka); err != nil {
		return col, err
	}
	defer producer.client.Close()
	s := &supervisor{
		exe: d.exe, say: d.say, producer: producer, observer: d.observers[c],
		unique: d.Messages, steps: schedule(d.Messages),
		config: worker.Config{
			Composition: c, Kafka: d.kafka, Topic: name, Group: name, Session: session,
			Redis: []string{d.redis}, Namespace: name, Ledger: d.ledger, Window: window,
			Lease: d.Lease, Fault: d.Break, Observe: d.url != "",
		},
	}
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	d.say.meter = progress.Start(d.say.out, "effects", int64(s.unique))
	defer d.say.meter.Stop()
	if err := s.run(ctx); err != nil {
		return col, err
	}
	if s.unplaced > 0 {
		d.say.line("  Note: %d crashes found no message to happen to.", s.unplaced)
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

// report writes what was found.
func (d *demo) report(columns []column, s *cli.Streams) error {
	if d.JSON {
		return cli.WriteJSON(s.Out, results(columns))
	}
	report(d.say.out, columns)
	if d.Keep {
		d.say.line("The ledger is in %s, table %s.", d.ledger, ledger.Table)
	}
	return nil
}
