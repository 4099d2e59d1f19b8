package kafkasegmentio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// restMax bounds the pause between two tries when the fault should soon be over, such as a change
// of leaders.
const restMax = time.Second

// errHalted ends a session in which a partition cannot go on; its End says why.
var errHalted = errors.New("kafkasegmentio: stopping")

// partition is a partition that this member has.
type partition struct {
	*session
	topic  string
	number int32
	uuid   string

	next  int64 // to fetch
	fresh bool  // nothing was committed or taken here, so it may begin elsewhere
	taken bool
	high  atomic.Int64 // the end of the log, as of the last fetch
	pause pause
}

// consume consumes a partition until the session ends.
func (s *session) consume(topic string, number int32) {
	a := &partition{session: s, topic: topic, number: number}
	if !a.begin() {
		return
	}
	if a.uuid == "" && (s.engine.Positions || s.engine.RangeHandler != nil) {
		s.fail(fmt.Errorf("kafkasegmentio: topic %q has no UUID, which Positions and a RangeHandler need: brokers must be 2.8 at least",
			topic))
		return
	}
	p, err := s.engine.Assign(kafkadriver.Assignment{
		Topic: topic, Partition: number, Generation: s.generation.ID,
		Context: s.ctx, Fenced: s.fenced, Counts: s.counts, Committer: s.committer,
		Pause: a.pause.set, Halt: func() { s.end(errHalted) }, LogEnd: a.high.Load, Begin: a.next,
	})
	if err == nil {
		s.offsets.Add(topic, number)
		err = p.Start()
	}
	if err != nil {
		s.fail(err)
		return
	}
	intake := a.read(p)
	ended := p.End()
	s.offsets.Forget(topic, number)
	if err := cmp.Or(ended, intake); err != nil {
		s.fail(err)
	}
}

// begin finds where the group continues. It reports false when the session ends before that.
func (a *partition) begin() bool {
	// find asks for the group's offset only after Claimed has asked for the topic's UUID, so the
	// offset is one of this topic.
	if !a.topics.Claimed(a.ctx, a.topic, a.number, kafka.FirstOffset, a.rewind) {
		return false
	}
	a.uuid = a.topics.UUID(a.topic)
	for failures := 0; ; failures++ {
		err := a.find()
		if err == nil {
			return true
		}
		if failures == 0 && a.ctx.Err() == nil {
			a.engine.GroupError(a.errorf("cannot begin yet: %w", err))
		}
		if kafkadriver.Sleep(a.ctx, a.engine.Pause(failures, restMax)) != nil {
			return false
		}
	}
}

func (a *partition) find() error {
	offset, metadata, err := a.cluster.Committed(a.ctx, a.topic, a.number)
	stamped := kafkadriver.Stamped(metadata)
	switch {
	case err != nil:
		return err
	case offset < 0:
		a.fresh = true
		a.next, err = a.cluster.Oldest(a.ctx, a.topic, a.number)
		return err
	case stamped != "" && a.uuid != "" && stamped != a.uuid: // the watch will end the session
		return fmt.Errorf("the offset %d was committed for UUID %s", offset, stamped)
	}
	a.next = offset
	return nil
}

func (a *partition) errorf(format string, args ...any) error {
	return fmt.Errorf("kafkasegmentio: %s/%d: "+format,
		append([]any{a.topic, a.number}, args...)...)
}

// read hands fetched messages on until the partition ends. It only reports an error that may be
// gone at the next fetch, and returns any other error.
func (a *partition) read(p *kafkadriver.Partition) error {
	ctx := p.Context()
	for failures := 0; a.pause.wait(ctx) == nil; failures++ {
		found, err := a.cluster.fetch(ctx, a.topic, a.number, a.next, a.opts.FetchBytes)
		rest := restMax
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kafka.OffsetOutOfRange):
			rest = a.engine.Attempts.RetryMax
			var fatal error
			if err, fatal = a.outOfRange(ctx); fatal != nil {
				return fatal
			}
		case err == nil:
			var fatal error
			if err, fatal = a.take(p, found); fatal != nil {
				return fatal
			}
		}
		if err == nil {
			failures = -1
			continue
		}
		if ctx.Err() == nil {
			a.engine.GroupError(a.errorf("offset %d: %w", a.next, err))
		}
		_ = kafkadriver.Sleep(ctx, a.engine.Pause(failures, rest))
	}
	return nil
}

// take hands messages on. err is about the data behind them; fatal ends the partition.
func (a *partition) take(p *kafkadriver.Partition, found *fetched) (err, fatal error) {
	a.high.Store(found.HighWatermark)
	messages, next, err := found.read(a.topic, a.next)
	if err == nil && next == a.next && len(found.Batches) > 0 {
		err = errBatch
	}
	a.next = next
	if len(messages) == 0 {
		return err, nil
	}
	for i := range messages {
		messages[i].TopicID = a.uuid
	}
	a.taken, a.fresh = true, false
	return err, p.Take(messages)
}

// outOfRange handles an offset that the log does not have. If the log was cut, the session ends,
// and the next one checks where to begin. If retention has deleted the offset, outOfRange reports
// that, and the offset is asked for again. But if nothing is lost, or kafkaadapter.Allow.Skip is
// set, the oldest message is next.
func (a *partition) outOfRange(ctx context.Context) (err, fatal error) {
	oldest, err := a.cluster.Oldest(ctx, a.topic, a.number)
	gap := fmt.Errorf("the log does not have it, and begins at %d: %w", oldest,
		kafka.OffsetOutOfRange)
	switch {
	case err != nil:
		return err, nil
	case a.fresh && !a.taken:
	case oldest <= a.next:
		a.watch.OutOfRange(a.topic, a.number)
		return nil, a.errorf("offset %d: %w", a.next, gap)
	case !a.engine.Allow.Skip:
		return gap, nil
	default:
		a.engine.GroupError(a.errorf("offset %d is skipped: %w", a.next, gap))
	}
	a.next = oldest
	return nil, nil
}

// pause keeps a partition from being fetched. The zero value is not paused.
type pause struct {
	mu   sync.Mutex
	over chan struct{} // nil: it is not paused
}

func (p *pause) set(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.over == nil:
		p.over = make(chan struct{})
	case !on && p.over != nil:
		close(p.over)
		p.over = nil
	}
}

// wait waits until the pause is over. It returns an error when ctx ends.
func (p *pause) wait(ctx context.Context) error {
	for ctx.Err() == nil {
		p.mu.Lock()
		over := p.over
		p.mu.Unlock()
		if over == nil {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
