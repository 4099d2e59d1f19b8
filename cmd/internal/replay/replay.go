package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	// openTime bounds how long the servers may take until the first letter.
	openTime = 30 * time.Second
	// letterTime bounds what is done with one letter, which is not interrupted.
	letterTime = 30 * time.Second
	// quiet is how long nothing may come of a partition before it counts as read: it may
	// end in what no consumer gets to see, such as the markers of a transaction.
	quiet = 5 * time.Second
)

// errEnough ends a run that has sent Options.Max letters.
var errEnough = errors.New("--max letters have been sent")

// run replays. When ctx ends it ends after the letter that is under way.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	r, err := open(ctx, *o, s)
	if err != nil {
		return err
	}
	defer r.close()
	err = r.watched(ctx)
	r.summary()
	if n := r.count[sent]; n > 0 {
		cli.Audit(s.Err, "replay", "topic", o.Topic, "group", o.Group, "sent", n)
	}
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return cli.Fail(cli.No, err)
	case r.count[left] > 0:
		return cli.Fail(cli.No, nil)
	}
	return nil
}

// run is one run of the command.
type run struct {
	options Options
	out     io.Writer
	errOut  io.Writer
	seen    bool // a person sees what is written to out next to errOut
	kafka   *kafka
	store   *store
	parts   []*part
	lock    context.Context // ends when another run may begin
	unlock  func()
	count   map[fate]int
	meter   *progress.Meter
}

// open connects to everything and finds out what there is to do.
func open(ctx context.Context, o Options, s *cli.Streams) (_ *run, err error) {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	r := &run{options: o, out: s.Out, errOut: s.Err, lock: ctx, unlock: func() {},
		count: make(map[fate]int)}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.kafka, err = openKafka(opening, o); err != nil {
		return nil, err
	}
	if r.store, err = openStore(opening, o); err != nil {
		return nil, err
	}
	if !o.DryRun {
		lock, unlock, err := r.store.lock(ctx, o)
		if err != nil {
			return nil, err
		}
		r.lock, r.unlock = lock, unlock
	}
	r.parts, err = r.kafka.parts(o.Topic, o.Group)
	return r, err
}

func (r *run) close() {
	r.unlock()
	if r.store != nil {
		r.store.close()
	}
	if r.kafka != nil {
		r.kafka.close()
	}
}

// watched runs under a bar, if somebody watches. Elsewhere the lines of the letters tell how far it
// is.
func (r *run) watched(ctx context.Context) error {
	if !progress.OnTerminal(r.errOut) {
		return r.run(ctx)
	}
	var offsets int64
	for _, p := range r.parts {
		offsets += max(0, p.end-p.position)
	}
	r.meter = progress.Start(r.errOut, "replaying", offsets)
	defer r.meter.Stop()
	r.seen = progress.OnTerminal(r.out)
	r.out, r.errOut = r.meter.Over(r.out), r.meter.Over(r.errOut)
	return r.run(ctx)
}

// run reads one partition after the other.
func (r *run) run(ctx context.Context) error {
	for _, p := range r.parts {
		if err := r.partition(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// partition reads to where the partition ended when the command began.
func (r *run) partition(ctx context.Context, p *part) error {
	if p.position >= p.end {
		return nil
	}
	messages, err := r.kafka.consumer.ConsumePartition(r.options.Topic, p.number, p.position)
	if err != nil {
		return fmt.Errorf("%s/%d: %w", r.options.Topic, p.number, err)
	}
	defer messages.Close() //nolint:errcheck // what it could tell has been told on its channel
	idle := time.NewTimer(quiet)
	defer idle.Stop()
	for p.position < p.end {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.lock.Done():
			return fmt.Errorf("another run may have begun: %w", context.Cause(r.lock))
		case err := <-messages.Errors():
			return err
		case <-idle.C:
			fmt.Fprintf(r.errOut, "%s/%d: nothing came for %v from offset %d on, below its end at %d\n", r.options.Topic, p.number, quiet, p.position, p.end)
			return nil
		case m := <-messages.Messages():
			from := p.position
			if err := r.take(ctx, p, m); err != nil {
				return err
			}
			r.meter.Add(p.position - from)
			idle.Reset(quiet)
		}
	}
	return nil
}

// take handles what was read at an offset, to the end even when ctx ends meanwhile.
func (r *run) take(ctx context.Context, p *part, m *sarama.ConsumerMessage) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case m == nil:
		return errors.New("the consumer has ended")
	}
	// there is nothing at offsets that are passed over
	p.done = p.done.with(p.position, min(m.Offset, p.end))
	if m.Offset >= p.end {
		p.position = p.end
		return nil
	}
	if !p.done.has(m.Offset) {
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), letterTime)
		defer cancel()
		if err := r.letter(whole, p, newLetter(m)); err != nil {
			return err
		}
	}
	p.position = m.Offset + 1
	return nil
}

// letter deals with a letter that is not done.
func (r *run) letter(ctx context.Context, p *part, l *letter) error {
	if !r.options.wanted(l) {
		r.count[unwanted]++
		return nil
	}
	if r.options.Max > 0 && r.count[sent]+r.count[wouldGo] >= r.options.Max {
		return errEnough
	}
	done := p.done.with(l.Offset, l.Offset+1)
	if text := done.text(); len(text) > maxFinished {
		return fmt.Errorf("%s/%d@%d: too many letters are left between others that are done: deal with those first, or choose another --group",
			l.Topic, l.Partition, l.Offset)
	}
	f, err := r.send(ctx, l)
	r.count[f]++
	r.report(l, f, err)
	switch {
	case f == failed:
		return err
	case r.options.DryRun, f == left:
		return nil
	}
	if err := r.kafka.commit(ctx, l.Topic, r.options.Group, l.Partition, done); err != nil {
		return fmt.Errorf("%s/%d@%d: %w", l.Topic, l.Partition, l.Offset, err)
	}
	p.done = done
	return nil
}

// send returns what became of a letter, and why.
func (r *run) send(ctx context.Context, l *letter) (fate, error) {
	message, err := r.prepare(ctx, l)
	if err == nil && r.kafka.producer == nil {
		return wouldGo, nil
	}
	if err == nil {
		err = r.kafka.producer.Send(ctx, message)
	}
	switch {
	case err == nil:
		return sent, nil
	case errors.Is(err, kafkaadapter.ErrSettled):
		return settled, nil
	case stays(err):
		return left, err
	}
	return failed, err
}

// summary counts.
func (r *run) summary() {
	done, verb := r.count[sent], "sent"
	if r.options.DryRun {
		done, verb = r.count[wouldGo], "would be sent"
	}
	if r.options.JSON {
		_ = json.NewEncoder(r.out).Encode(map[string]any{"dry_run": r.options.DryRun, "sent": done,
			"settled": r.count[settled], "left": r.count[left], "unwanted": r.count[unwanted]})
		return
	}
	fmt.Fprintf(r.out, "%d %s, %d processed since, %d left where they are, %d not selected\n",
		done, verb, r.count[settled], r.count[left], r.count[unwanted])
}
