package kafkasarama

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// ErrUnmarked: a wrapped handler got a message and did not mark it, nor a later one, for
// Attempts.BusyTimeout.
var ErrUnmarked = errors.New("kafkasarama: the handler did not mark the message")

// Wrap cannot cancel the handling of one message, retries nothing, and costs two round trips a
// message; use [Consume] for a new program. It is a one-line trial for a handler that exists: the
// claim that the handler sees yields only messages that were won, and a mark is passed on to the
// group after the record.
//
//	handler, err := kafkasarama.Wrap("payments", handler, kafkaadapter.Config{Deduper: d})
//
// To mark a message means what it means to sarama: everything that was yielded up to it is done.
// MarkMessage and MarkOffset record these messages in one exchange, and then mark what is
// contiguous, with the duplicates between. They block until that is recorded, or the session ends,
// because sarama gives them no error to return. A message that is passed over without a mark is
// recorded with the next mark, as its offset is gone anyway, and told to Observer.PassedOver. When
// the oldest message without a mark is older than Attempts.BusyTimeout, the claim ends with an
// [*kafkaadapter.UnprocessableError] that wraps [ErrUnmarked]. ResetOffset does not pass what is
// not recorded. The handler must not keep the real session, and must return when its channel of
// messages is closed, or its session's context has ended.
//
// A message that cannot be claimed, because it has no id, its id was used with another payload, or
// it is uncertain, goes to Config.Park or ends the claim with an
// [*kafkaadapter.UnprocessableError].
//
// Of Config it uses Deduper, ID, Scope, TopicName, RetryTopics, Fingerprint, Label, Park,
// Attempts (the backoff and BusyTimeout), Allow.NoID, Logger, and of Observer the hooks about
// single messages; whatever else is set is an [*dedup.InputError].
func Wrap(group string, handler sarama.ConsumerGroupHandler,
	cfg kafkaadapter.Config) (sarama.ConsumerGroupHandler, error) {
	switch {
	case handler == nil:
		return nil, &dedup.InputError{Field: "handler", Reason: "is nil"}
	case group == "":
		return nil, &dedup.InputError{Field: "group", Reason: "is empty"}
	}
	if err := kafkadriver.Refuse("a wrapped handler", []kafkadriver.Field{
		{Name: "Unclaimed", Set: cfg.Unclaimed},
		{Name: "Handler", Set: cfg.Handler != nil},
		{Name: "BatchHandler", Set: cfg.BatchHandler != nil},
		{Name: "RangeHandler", Set: cfg.RangeHandler != nil},
		{Name: "Positions", Set: cfg.Positions},
		{Name: "Attempts.Max", Set: cfg.Attempts.Max != 0},
		{Name: "Attempts.Delayed", Set: cfg.Attempts.Delayed != nil},
		{Name: "Attempts.Timeout", Set: cfg.Attempts.Timeout != 0},
		{Name: "Order", Set: cfg.Order != kafkaadapter.ByKey},
		{Name: "Own", Set: cfg.Own != nil},
		{Name: "Allow.TakeOver", Set: cfg.Allow.TakeOver},
		{Name: "Tuning", Set: cfg.Tuning != kafkaadapter.Tuning{}},
	}); err != nil {
		return nil, err
	}
	cfg.Handler = func(context.Context, *kafkaadapter.Message) error { return nil } // checked
	engine, err := kafkadriver.New("kafkasarama", group, cfg)
	if err != nil {
		return nil, err
	}
	return &wrapped{inner: handler, engine: engine,
		sessions: make(map[sarama.ConsumerGroupSession]*wrappedSession)}, nil
}

// wrapped is the handler that sarama sees.
type wrapped struct {
	inner  sarama.ConsumerGroupHandler
	engine *kafkadriver.Engine

	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]*wrappedSession
}

// Setup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Setup(member sarama.ConsumerGroupSession) error {
	s := &wrappedSession{ConsumerGroupSession: member,
		claims: make(map[topicPartition]*wrappedClaim)}
	w.mu.Lock()
	w.sessions[member] = s
	w.mu.Unlock()
	return w.inner.Setup(s)
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Cleanup(member sarama.ConsumerGroupSession) error {
	s := w.session(member)
	w.mu.Lock()
	delete(w.sessions, member)
	w.mu.Unlock()
	return w.inner.Cleanup(s)
}

func (w *wrapped) session(member sarama.ConsumerGroupSession) *wrappedSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sessions[member]; s != nil {
		return s
	}
	return &wrappedSession{ConsumerGroupSession: member} // which has no claims
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (w *wrapped) ConsumeClaim(member sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	s := w.session(member)
	c := &wrappedClaim{ConsumerGroupClaim: claim, engine: w.engine, session: s,
		at:  topicPartition{claim.Topic(), claim.Partition()},
		out: make(chan *sarama.ConsumerMessage)}
	c.base = context.WithoutCancel(member.Context())
	c.ctx, c.stop = context.WithCancelCause(member.Context())
	s.add(c)
	defer s.remove(c)
	var feeding sync.WaitGroup
	feeding.Go(func() { c.stop(c.feed()) })
	feeding.Go(c.watch)
	err := w.inner.ConsumeClaim(s, c)
	c.stop(nil)
	feeding.Wait()
	c.giveBack()
	return cmp.Or(c.failed(), err)
}

// wrappedSession is the session that the inner handler sees.
type wrappedSession struct {
	sarama.ConsumerGroupSession

	mu     sync.Mutex
	claims map[topicPartition]*wrappedClaim
}

func (s *wrappedSession) add(c *wrappedClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = make(map[topicPartition]*wrappedClaim)
	}
	s.claims[c.at] = c
}

func (s *wrappedSession) remove(c *wrappedClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, c.at)
}

func (s *wrappedSession) claim(topic string, partition int32) *wrappedClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[topicPartition{topic, partition}]
}

// MarkOffset implements sarama.ConsumerGroupSession.
func (s *wrappedSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	if c := s.claim(topic, partition); c != nil {
		c.mark(offset, metadata)
	}
}

// MarkMessage implements sarama.ConsumerGroupSession.
func (s *wrappedSession) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// ResetOffset implements sarama.ConsumerGroupSession.
func (s *wrappedSession) ResetOffset(topic string, partition int32, offset int64,
	metadata string) {
	if c := s.claim(topic, partition); c != nil {
		c.reset(offset, metadata)
	}
}

type topicPartition struct {
	topic     string
	partition int32
}

// wrappedClaim is the claim that the inner handler sees.
type wrappedClaim struct {
	sarama.ConsumerGroupClaim
	engine  *kafkadriver.Engine
	session *wrappedSession
	at      topicPartition
	out     chan *sarama.ConsumerMessage
	base    context.Context // outlives the session
	ctx     context.Context // ends with the claim
	stop    context.CancelCauseFunc
	tracker flow.Tracker

	marking sync.Mutex // one mark at a time

	mu   sync.Mutex
	held []*heldMessage // claimed and not ended, in the order of their offsets
	err  error          // why the claim cannot go on
}

// heldMessage is a message whose claim was won.
type heldMessage struct {
	msg   kafkaadapter.Message
	slot  flow.Slot
	claim *dedup.Claim
	end   context.CancelFunc // of the renewal
	since time.Time          // it was yielded; zero: it was not yet
	done  bool               // marked by the handler
}

// Messages implements sarama.ConsumerGroupClaim.
func (c *wrappedClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// feed claims messages one by one and yields those that are won. It returns when the claim ends.
func (c *wrappedClaim) feed() error {
	defer close(c.out)
	for {
		select {
		case m, open := <-c.ConsumerGroupClaim.Messages():
			if !open {
				return nil
			}
			if err := c.take(m); err != nil {
				c.fail(err)
				return err
			}
		case <-c.ctx.Done():
			return nil
		}
	}
}

func (c *wrappedClaim) take(m *sarama.ConsumerMessage) error {
	slot, err := c.tracker.Track(m.Offset)
	if err != nil {
		return err
	}
	h := &heldMessage{msg: messageOf(m), slot: slot}
	elsewhere, bad := c.engine.Identify(&h.msg)
	won := false
	if bad == nil {
		won, bad, err = c.claim(h, elsewhere)
	}
	switch {
	case err != nil, c.ctx.Err() != nil:
		return err
	case bad != nil:
		return c.park(h, bad)
	case !won:
		slot.Done()
		c.pass("")
		return nil
	}
	c.mu.Lock()
	h.since = time.Now()
	c.held = append(c.held, h)
	c.mu.Unlock()
	select {
	case c.out <- m:
	case <-c.ctx.Done():
		c.mu.Lock()
		h.since = time.Time{}
		c.mu.Unlock()
	}
	return nil
}

// claim asks until the message is won, done, or known to be one that cannot be claimed.
func (c *wrappedClaim) claim(h *heldMessage, elsewhere bool) (won bool, bad, err error) {
	var busy time.Time
	for n := 0; ; n++ {
		answer, err := c.engine.Deduper.Claim(c.ctx, h.msg.ID, c.engine.RequestOf(&h.msg))
		switch {
		case errors.Is(err, dedup.ErrClosed):
			return false, nil, err
		case err != nil && c.ctx.Err() != nil:
			return false, nil, nil
		case err != nil: // the store cannot be asked
		case answer.Outcome == dedup.Acquired:
			h.claim, h.msg.Attempt = answer, answer.Attempt
			_, h.end = answer.KeepAlive(c.base)
			return true, nil, nil
		case answer.Outcome == dedup.Duplicate && !kafkadriver.FoundFailed(answer):
			c.skipped(h, answer, elsewhere)
			return false, nil, nil
		case answer.Outcome == dedup.Duplicate:
			return false, answer.Err(), nil
		case kafkadriver.Unprocessable(answer) != nil:
			return false, kafkadriver.Unprocessable(answer), nil
		case answer.Outcome == dedup.InFlight:
			if hook := c.engine.Observer.Waiting; hook != nil {
				hook(&h.msg)
			}
			if busy.IsZero() {
				busy = time.Now()
			}
			if c.engine.Park != nil && time.Since(busy) >= c.engine.Attempts.BusyTimeout {
				return false, kafkaadapter.ErrBusy, nil
			}
		}
		if c.engine.Backoff(c.ctx, n) != nil {
			return false, nil, nil
		}
	}
}

func (c *wrappedClaim) skipped(h *heldMessage, answer *dedup.Claim, elsewhere bool) {
	if answer.Cause == driver.OtherSource && !elsewhere {
		c.engine.SkippedOtherSource(&h.msg)
	}
	if hook := c.engine.Observer.Skipped; hook != nil {
		hook(&h.msg, answer.Cause, answer.Record.Age)
	}
}

// park puts a message aside that cannot be claimed.
func (c *wrappedClaim) park(h *heldMessage, reason error) error {
	first := errors.Is(reason, kafkaadapter.ErrNoID) && !c.engine.Allow.NoID &&
		!c.engine.HasIDs(c.at.topic, c.at.partition)
	if c.engine.Park == nil || first {
		return &kafkaadapter.UnprocessableError{Topic: c.at.topic, Partition: c.at.partition,
			Offset: h.msg.Offset, Err: reason}
	}
	for n := 0; ; n++ {
		err := c.engine.Park(c.ctx, &h.msg, reason)
		if err == nil {
			break
		}
		if c.engine.Backoff(c.ctx, n) != nil {
			return nil
		}
	}
	if hook := c.engine.Observer.Parked; hook != nil {
		hook(&h.msg, reason)
	}
	h.slot.Done()
	c.pass("")
	return nil
}

// mark records what was yielded below an offset, and marks what is contiguous.
func (c *wrappedClaim) mark(next int64, metadata string) {
	c.marking.Lock()
	defer c.marking.Unlock()
	c.mu.Lock()
	var all []*heldMessage
	for _, h := range c.held {
		if h.msg.Offset < next && !h.since.IsZero() {
			h.done = true
			all = append(all, h)
		}
	}
	c.mu.Unlock()
	if hook := c.engine.Observer.PassedOver; hook != nil {
		for _, h := range all {
			if h.msg.Offset != next-1 {
				hook(&h.msg)
			}
		}
	}
	for n := 0; len(all) > 0; n++ {
		if all = c.record(all); len(all) == 0 {
			break
		}
		if c.engine.Backoff(c.session.Context(), n) != nil {
			return // not known to be recorded, so not marked
		}
	}
	c.pass(metadata)
}

// record ends claims in one exchange, and returns those of which it is not known whether they are
// on record.
func (c *wrappedClaim) record(all []*heldMessage) (left []*heldMessage) {
	done := make([]dedup.Completion, len(all))
	for i, h := range all {
		done[i] = dedup.Completion{Claim: h.claim, InTime: true}
	}
	errs := c.engine.Deduper.CompleteBatch(c.base, done)
	for i, h := range all {
		switch {
		case errs == nil || errs[i] == nil, errors.Is(errs[i], dedup.ErrLeaseLost) && c.found(h):
			c.recorded(h)
		default:
			left = append(left, h)
		}
	}
	return left
}

// found looks what became of a message whose claim was lost before its record: another owner may
// have recorded it. Otherwise it is claimed again, to be recorded by the next exchange.
func (c *wrappedClaim) found(h *heldMessage) bool {
	h.end()
	answer, err := c.engine.Deduper.Claim(c.base, h.msg.ID, c.engine.RequestOf(&h.msg))
	if err != nil {
		return false
	}
	if answer.Outcome == dedup.Acquired {
		h.claim = answer
		_, h.end = answer.KeepAlive(c.base)
	}
	return answer.Outcome == dedup.Duplicate
}

func (c *wrappedClaim) recorded(h *heldMessage) {
	h.end()
	if hook := c.engine.Observer.Recorded; hook != nil {
		hook(&h.msg, 0)
	}
	c.mu.Lock()
	for i, other := range c.held {
		if other == h {
			c.held = append(c.held[:i], c.held[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	h.slot.Done()
}

// pass marks what is contiguous with the real session.
func (c *wrappedClaim) pass(metadata string) {
	if next, ok := c.tracker.Watermark(); ok {
		c.session.ConsumerGroupSession.MarkOffset(c.at.topic, c.at.partition, next, metadata)
	}
}

// reset goes back, and never beyond what is recorded.
func (c *wrappedClaim) reset(offset int64, metadata string) {
	c.marking.Lock()
	defer c.marking.Unlock()
	next, ok := c.tracker.Watermark()
	if !ok {
		next = c.InitialOffset()
	}
	if next >= 0 && offset > next {
		offset = next
	}
	c.session.ConsumerGroupSession.ResetOffset(c.at.topic, c.at.partition, offset, metadata)
}

// watch ends the claim when the handler does not mark a message.
func (c *wrappedClaim) watch() {
	limit := c.engine.Attempts.BusyTimeout
	for kafkadriver.Sleep(c.ctx, limit/10) == nil {
		c.mu.Lock()
		var oldest *heldMessage
		if len(c.held) > 0 && !c.held[0].done && !c.held[0].since.IsZero() {
			oldest = c.held[0]
		}
		c.mu.Unlock()
		if oldest != nil && time.Since(oldest.since) >= limit {
			err := &kafkaadapter.UnprocessableError{Topic: c.at.topic, Partition: c.at.partition,
				Offset: oldest.msg.Offset, Err: fmt.Errorf("%w for %v", ErrUnmarked, limit)}
			c.fail(err)
			c.stop(err)
			return
		}
	}
}

func (c *wrappedClaim) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *wrappedClaim) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// giveBack releases the claims of messages that were not marked. The claim of a message that was
// marked, and is not known to be on record, lapses: its effect has happened.
func (c *wrappedClaim) giveBack() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	var done []dedup.Completion
	for _, h := range held {
		h.end()
		if !h.done {
			done = append(done, dedup.Completion{Claim: h.claim, Err: kafkadriver.ErrRevoked,
				NotAttempted: h.since.IsZero()})
		}
	}
	if len(done) > 0 {
		ctx, cancel := context.WithTimeout(c.base, kafkadriver.CommitTimeout)
		defer cancel()
		c.engine.Deduper.CompleteBatch(ctx, done)
	}
}
