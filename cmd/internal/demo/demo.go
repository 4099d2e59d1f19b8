package demo

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/cmd/internal/demo/stream"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/progress"
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

// run runs the demo. When ctx ends, it kills its workers, cleans up, and returns.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := openBackends(*o)
	if err != nil {
		return err
	}
	defer b.close()
	d := &demo{options: *o, backends: b, exe: exe, say: &output{out: s.Out},
		records: stream.Payments(o.Messages, o.Seed)}
	if o.JSON {
		d.say.out = s.Err
	}
	if o.Listen != "" {
		if d.pages, err = openPages(ctx, o.Listen, b.redis,
			d.topicName(worker.Claimed)); err != nil {
			return err
		}
		defer d.pages.close() //nolint:errcheck // they have been served
	}
	columns, err := d.run(ctx)
	if err != nil {
		return cli.Fail(cli.No, err)
	}
	if err := d.report(columns, s); err != nil {
		return err
	}
	if d.pages != nil {
		d.say.line("\nRecords are kept for %v. To ask for one: %s", window, d.inspect())
		d.say.line("The console stays at %s/ until you interrupt this (Ctrl-C).", d.pages.url)
		<-ctx.Done()
	}
	for _, c := range columns {
		if !c.kept() {
			return cli.Fail(cli.No, nil)
		}
	}
	return nil
}

// demo is one run of all compositions.
type demo struct {
	options  Options
	backends *backends
	exe      string
	say      *output
	records  []stream.Record
	messages []stream.Message
	ledger   *ledger.Ledger
	pages    *pages
}

func (d *demo) run(ctx context.Context) (columns []column, err error) {
	d.messages = stream.Make(d.records, stream.Config{
		Seed: d.options.Seed, Partitions: partitions, Duplicates: d.options.Duplicates,
	})
	d.head()
	if d.ledger, err = ledger.Open(d.backends.ledger); err != nil {
		return nil, err
	}
	defer d.ledger.Close() //nolint:errcheck // what counts has been read
	if err := d.createLedger(ctx); err != nil {
		return nil, err
	}
	compositions := []worker.Composition{worker.Atomic, worker.Claimed}
	if d.options.Naive {
		compositions = append(compositions, worker.Naive)
	}
	for _, c := range compositions {
		col, err := d.runOne(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", titles[c], err)
		}
		columns = append(columns, col)
	}
	return columns, nil
}

func (d *demo) createLedger(ctx context.Context) error {
	if err := d.ledger.Create(ctx); err != nil {
		return err
	}
	marks, err := d.ledger.Marks(string(worker.Atomic))
	if err != nil {
		return err
	}
	return marks.Migrate(ctx, d.ledger.DB)
}

func (d *demo) head() {
	unique := stream.Unique(d.messages)
	d.say.line("%d ids in %d messages over %d partitions, seed %d", unique, len(d.messages),
		partitions, d.options.Seed)
	d.say.line("Kafka: embedded (kfake, 3 brokers)   Redis: embedded (miniredis)   " +
		"ledger: embedded (SQLite)")
	if d.pages != nil {
		d.say.line("Console: %s/   metrics for Prometheus: %s%s", d.pages.url, d.pages.url,
			metricsPath)
	}
	if plannedCrashes(schedule(unique)) == 0 {
		d.say.line("Note: so short a stream has no room for crashes.")
	}
}

// runOne runs one composition on a topic of its own, and judges it.
func (d *demo) runOne(ctx context.Context, c worker.Composition) (col column, err error) {
	d.say.line("\n%s: %s", titles[c], explanations[c])
	name := d.topicName(c)
	t, err := createTopic(ctx, d.backends.kafka, name)
	if err != nil {
		return col, err
	}
	defer t.client.Close()
	unique := stream.Unique(d.messages)
	s := &supervisor{
		exe: d.exe, config: d.workerConfig(c, t), say: d.say, unique: unique,
		steps: schedule(unique), pages: d.pages,
		producer: newProducer(t, d.messages, d.backends.session, d.options.Takes),
	}
	ctx, cancel := context.WithTimeout(ctx, d.options.Timeout)
	defer cancel()
	d.say.meter = progress.Start(d.say.out, "effects", int64(unique))
	defer d.say.meter.Stop()
	if err := s.run(ctx); err != nil {
		return col, err
	}
	if s.unplaced > 0 {
		d.say.line("  Note: %d crashes found no message to happen to.", s.unplaced)
	}
	counts, err := d.ledger.Count(ctx, string(c))
	if err != nil {
		return col, err
	}
	ids := make([]string, len(d.records))
	for i, r := range d.records {
		ids[i] = r.ID
	}
	col = column{judgment: judge(c, ids, counts, s.tally.crashes), tally: s.tally,
		took: time.Since(s.began)}
	d.say.event(col.took, "every message is committed, the workers have left")
	return col, nil
}

func (d *demo) workerConfig(c worker.Composition, t *topic) worker.Config {
	return worker.Config{
		Composition: c,
		Kafka:       d.backends.kafka, Topic: t.name, Group: t.group, Session: d.backends.session,
		Redis: d.backends.redis, Namespace: t.name, Ledger: d.backends.ledger,
		Window: window, Lease: d.options.Lease,
		Fault:   d.options.Break,
		Observe: d.pages != nil,
	}
}

// topicName is the name of the composition's topic, and also the namespace of its keys.
func (d *demo) topicName(c worker.Composition) string {
	return fmt.Sprintf("onceward-demo-%s-%s", d.backends.run, c)
}

// inspect is a command that looks up a message of the Claimed composition.
func (d *demo) inspect() string {
	name := d.topicName(worker.Claimed) // of the topic, of its group and of the namespace
	return fmt.Sprintf("onceward inspect %s --namespace %s --group %s --topic %s --redis %s",
		d.records[0].ID, name, name, name, "redis://"+d.backends.redis[0])
}

// report writes what was found.
func (d *demo) report(columns []column, s *cli.Streams) error {
	if d.options.JSON {
		return cli.WriteJSON(s.Out, results(columns))
	}
	d.say.line("")
	table(d.say.out, columns)
	d.say.line("")
	for _, c := range columns {
		details(d.say.out, c)
	}
	conclusions(d.say.out, columns)
	if d.options.Keep {
		d.say.line("The ledger is in %s, table %s.", d.backends.ledger.File, d.backends.ledger.Table)
	}
	return nil
}
