// Package kafkadriver has what all Kafka drivers have in common. It manages a partition from its
// assignment to its revocation, so that an offset is committed only after the effects and the
// records of all messages below it. A driver such as kafkasarama gives it the messages that its
// client has received, and functions to pause, commit and stop.
//
// Programs use a driver. Use this package to write another driver.
package kafkadriver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/deadletter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// Engine has what the partitions of one consumer share. It is safe for concurrent use.
type Engine struct {
	kafkaadapter.Config
	name   string // of the driver, in errors
	order  pipeline.Order
	retry  backoff.Policy
	group  string
	scopes deadletter.Scopes
	delays map[string]int // by topic: its place in Attempts.Delayed

	abandoned  abandoned
	suspects   suspects
	others     set[string]         // topics for which SkippedOtherSource has warned
	identified set[TopicPartition] // from which this process has received a message with an id
	parkedLog  parkedLog
	parkings   sync.Map        // by topic: a *parking
	errors     series          // of the group
	running    atomic.Bool     // Sessions
	shown      set[*Partition] // for Progress

	mu     sync.Mutex
	topics map[string]deadletter.TopicScope // of Identify
}

// New completes and checks the configuration of a driver's consumer in a group; an
// [*dedup.InputError] names the first bad field. It starts nothing and contacts nobody.
func New(driver, group string, cfg kafkaadapter.Config) (*Engine, error) {
	if group == "" {
		return nil, &dedup.InputError{Field: "group", Reason: "is empty"}
	}
	e := &Engine{Config: cfg, name: driver, group: group,
		topics: make(map[string]deadletter.TopicScope)}
	if e.ID == nil {
		e.ID = kafkaadapter.DefaultID()
	}
	e.Logger = cmp.Or(e.Logger, slog.Default())
	e.setDefaults()
	if err := e.check(); err != nil {
		return nil, err
	}
	e.retry = backoff.Policy{Base: e.Attempts.RetryBase, Cap: e.Attempts.RetryMax}
	e.order = pipeline.Order(e.Order)
	e.scopes = deadletter.Scopes{Explicit: cfg.Scope, Group: group, TopicName: cfg.TopicName,
		Retry: slices.Clone(cfg.RetryTopics)}
	e.delays = make(map[string]int, len(e.Attempts.Delayed))
	for i, d := range e.Attempts.Delayed {
		e.delays[d.Topic] = i
		e.scopes.Retry = append(e.scopes.Retry, d.Topic)
	}
	if e.RangeHandler != nil {
		e.BatchHandler = e.RangeHandler.Batch
	}
	return e, nil
}

// Group is the name of the consumer group.
func (e *Engine) Group() string { return e.group }

// unclaimed reports whether the handler records the message itself.
func (e *Engine) unclaimed() bool { return e.Deduper == nil }

// Handover is how long giving a partition up may take, beyond Tuning.Drain.
func (e *Engine) Handover() time.Duration {
	if e.Own != nil {
		return handover + ownTimeout
	}
	return handover
}

// Backoff waits after this many failures in a row. It returns an error when ctx ends earlier.
func (e *Engine) Backoff(ctx context.Context, failures int) error {
	return backoff.Sleep(ctx, e.retry.Delay(failures, 0, nil))
}

// Sessions runs one session of the consumer after another until ctx ends, and returns nil then. It
// returns the error of a session that was the last one, an error that [IsFatal] recognizes, and
// [kafkaadapter.ErrRunning] while another call runs. Any other error it reports to GroupError,
// unless the error has a method Reported, and waits before the next session, the longer the more
// sessions have failed in a row. After a session without an error the next one follows at once.
func (e *Engine) Sessions(ctx context.Context, session func() (last bool, err error)) error {
	if !e.running.CompareAndSwap(false, true) {
		return kafkaadapter.ErrRunning
	}
	defer e.running.Store(false)
	for failures := 0; ; failures++ {
		began := time.Now()
		last, err := session()
		switch {
		case last, IsFatal(err):
			return err
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
			continue
		}
		var told interface{ Reported() }
		if !errors.As(err, &told) {
			e.GroupError(err)
		}
		if time.Since(began) > e.Attempts.RetryMax {
			failures = 0
		}
		if e.Backoff(ctx, failures) != nil {
			return nil
		}
	}
}

// GroupError reports an error of the group or of the client. Equal errors in a series are logged
// less and less often.
func (e *Engine) GroupError(err error) {
	e.errors.Warn(e.Logger, e.name+": consumer group", err)
	if hook := e.Observer.GroupError; hook != nil {
		hook(err)
	}
}

// IsFatal reports whether an error of a partition must stop the consumer. Any other error may be
// gone in the next session.
func IsFatal(err error) bool {
	var message *kafkaadapter.UnprocessableError
	return errors.As(err, &message) || errors.Is(err, dedup.ErrClosed) ||
		errors.Is(err, pipeline.ErrNoDecision) || errors.Is(err, errRefused)
}

// Assignment is one partition in the hands of this member.
type Assignment struct {
	Topic      string
	Partition  int32
	Generation int32
	// Context ends when the partition has to be given up. A handler that runs then may go on; it
	// sees the values of this context.
	Context context.Context
	// Fenced ends when the group has given the partition away, with a cause that wraps
	// [kafkaadapter.ErrFenced]. Handlers are then canceled at once. Nil: the driver never learns
	// that.
	Fenced context.Context
	// Counts of the topics' partitions. Required with Config.Own.
	Counts *Counts
	// Committer commits the partition's watermark.
	Committer *Committer
	// Pause pauses or resumes fetching. It must not wait.
	Pause func(on bool)
	// Halt stops the whole consumer, because this partition cannot go on.
	Halt func()
	// LogEnd returns the offset after the log's last message, as of the last fetch. Begin is the
	// first offset that is read, or negative. Both are for Progress.
	LogEnd func() int64
	Begin  int64
}

// Committer commits watermarks: see [NewCommitter].
type Committer = pipeline.Committer

// Progress returns a reading of every partition that is not given up, in order. It costs a few
// locks for each partition, and must not be called inside Observer.Paused.
func (e *Engine) Progress() []kafkaadapter.Progress {
	// A partition that is being paused holds the lock of its backpressure while it waits for
	// whoever can pause it. So no lock of ours may be held while we wait for that lock.
	shown := e.shown.all()
	all := make([]kafkaadapter.Progress, len(shown))
	for i, p := range shown {
		all[i] = p.progress()
	}
	slices.SortFunc(all, func(x, y kafkaadapter.Progress) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return all
}

func (p *Partition) progress() kafkaadapter.Progress {
	at, paused := p.tracker.Progress(), p.backpressure.Reasons()
	out := kafkaadapter.Progress{
		Topic: p.at.Topic, Partition: p.at.Partition,
		Received: at.Received, Watermark: at.Watermark, InFlight: at.Held,
		Unfinished: at.Unfinished, Oldest: at.Oldest, Age: at.Age,
		Backlogged: paused&pipeline.Backlog != 0, StoreDown: paused&pipeline.StoreDown != 0,
		PausedFor: p.backpressure.Paused(), NotOwned: p.cfg.Own != nil && p.owner.now() == nil,
	}
	from := at.Watermark
	if from < 0 {
		from = max(p.at.Begin, at.Oldest) // nothing is finished
	}
	if from >= 0 && p.at.LogEnd != nil {
		out.Lag = max(p.at.LogEnd()-from, 0)
	}
	return out
}
