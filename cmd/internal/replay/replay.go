package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

const (
	// openTime bounds how long the servers may take before the first message.
	openTime = 30 * time.Second
	// messageTime bounds the work on one message, which ctx does not interrupt.
	messageTime = 30 * time.Second
	// quiet is how long a partition may send nothing before it counts as read to its end: its last
	// records may be ones that consumers never see, such as the markers of a transaction.
	quiet = 5 * time.Second
)

// errEnough ends a run that has sent Options.Max messages.
var errEnough = errors.New("--max messages have been sent")

// run replays. When ctx ends, it finishes the message that it works on, and returns.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	r := &run{Options: o, out: s.Out, errOut: s.Err, lock: ctx, count: make(map[fate]int)}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return err
	}
	err := r.run(ctx)
	r.summary()
	if n := r.count[fateSent]; n > 0 {
		cli.Audit(s.Err, "replay", "topic", o.Topic, "group", o.Group, "sent", n)
	}
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return cli.Fail(cli.No, err)
	case r.count[fateLeft] > 0:
		return cli.Fail(cli.No, nil)
	}
	return nil
}

// run is one run of the command.
type run struct {
	*Options
	out    io.Writer
	errOut io.Writer
	seen   bool // out is a terminal too: the user sees out and errOut together
	meter  *progress.Meter

	client   *kgo.Client
	admin    *kadm.Client
	producer kafkaadapter.Producer
	parts    []*part
	redis    redis.UniversalClient
	dedup    *dedup.Deduper  // of the consumer
	lock     context.Context // ends when the lock is lost: another run may begin
	closers  []func()

	count map[fate]int
}

// open connects to everything and finds out what there is to do.
func (r *run) open(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	for _, step := range []func(context.Context) error{r.openKafka, r.openStore, r.acquire} {
		if err := step(opening); err != nil {
			return err
		}
	}
	return server.Unanswered(r.findParts(opening), r.Kafka.Brokers...)
}

func (r *run) close() {
	for _, f := range slices.Backward(r.closers) {
		f()
	}
}

// run reads one partition after another, and shows a progress bar on a terminal. Elsewhere the
// lines about the messages show the progress.
func (r *run) run(ctx context.Context) error {
	if progress.OnTerminal(r.errOut) {
		var offsets int64
		for _, p := range r.parts {
			offsets += max(0, p.end-p.position)
		}
		r.meter = progress.Start(r.errOut, "replaying", offsets)
		defer r.meter.Stop()
		r.seen = progress.OnTerminal(r.out)
		r.out, r.errOut = r.meter.Over(r.out), r.meter.Over(r.errOut)
	}
	for _, p := range r.parts {
		if err := r.partition(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// partition reads up to where the partition ended when the command began.
func (r *run) partition(ctx context.Context, p *part) error {
	if p.position >= p.end {
		return nil
	}
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{
		r.Topic: {p.number: kgo.NewOffset().At(p.position)}})
	defer r.client.RemoveConsumePartitions(map[string][]int32{r.Topic: {p.number}})
	for p.position < p.end {
		fetches, err := broker.Poll(r.lock, r.client, quiet)
		switch stopped := r.stopped(ctx); {
		case stopped != nil:
			return stopped
		case err != nil:
			return err
		case fetches.Empty():
			fmt.Fprintf(r.errOut, "%s/%d: nothing came for %v from offset %d on, below its end at %d\n",
				r.Topic, p.number, quiet, p.position, p.end)
			return nil
		}
		for _, m := range fetches.Records() {
			from := p.position
			if err := r.take(ctx, p, kafkafranz.Message(m)); err != nil {
				return err
			}
			r.meter.Add(p.position - from)
		}
	}
	return nil
}

// stopped returns why no other message may be begun, or nil.
func (r *run) stopped(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.lock.Err() != nil:
		return fmt.Errorf("another run may have begun: %w", context.Cause(r.lock))
	}
	return nil
}

// take handles the message at an offset. Once it has begun, it finishes even if ctx ends.
func (r *run) take(ctx context.Context, p *part, m *kafkaadapter.Message) error {
	if err := r.stopped(ctx); err != nil {
		return err
	}
	// the skipped offsets hold no message
	p.done = p.done.with(p.position, min(m.Offset, p.end))
	if m.Offset >= p.end {
		p.position = p.end
		return nil
	}
	if !p.done.has(m.Offset) {
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), messageTime)
		defer cancel()
		if err := r.handle(whole, p, newDeadLetter(m)); err != nil {
			return err
		}
	}
	p.position = m.Offset + 1
	return nil
}

// handle processes a dead letter that is not done.
func (r *run) handle(ctx context.Context, p *part, l *deadLetter) error {
	if !r.wanted(l.view) {
		r.count[fateUnwanted]++
		return nil
	}
	if r.Max > 0 && r.count[fateSent]+r.count[fateWould] >= r.Max {
		return errEnough
	}
	done := p.done.with(l.Offset, l.Offset+1)
	if text := done.text(); len(text) > maxFinished {
		return fmt.Errorf("%s: too many messages are left between others that are done: deal with those first, or choose another --group",
			l.view.At)
	}
	f, err := r.send(ctx, l)
	r.count[f]++
	r.report(l, f, err)
	switch {
	case f == fateFailed:
		return err
	case r.DryRun, f == fateLeft:
		return nil
	}
	if err = r.commit(ctx, l, done); err == nil {
		p.done = done
	}
	return err
}

// send returns the fate of a dead letter, and the reason.
func (r *run) send(ctx context.Context, l *deadLetter) (fate, error) {
	message, err := r.prepare(ctx, l)
	if err == nil && r.DryRun {
		return fateWould, nil
	}
	if err == nil {
		err = r.producer.Send(ctx, message)
	}
	switch {
	case err == nil:
		return fateSent, nil
	case errors.Is(err, kafkaadapter.ErrSettled):
		return fateSettled, nil
	case stays(err):
		return fateLeft, err
	}
	return fateFailed, err
}

// summary prints the counts.
func (r *run) summary() {
	done, verb := r.count[fateSent], "sent"
	if r.DryRun {
		done, verb = r.count[fateWould], "would be sent"
	}
	if r.JSON {
		_ = json.NewEncoder(r.out).Encode(map[string]any{"dry_run": r.DryRun, "sent": done,
			"settled": r.count[fateSettled], "left": r.count[fateLeft],
			"unwanted": r.count[fateUnwanted]})
		return
	}
	fmt.Fprintf(r.out, "%d %s, %d processed since, %d left where they are, %d not selected\n",
		done, verb, r.count[fateSettled], r.count[fateLeft], r.count[fateUnwanted])
}
