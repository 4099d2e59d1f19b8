package kafkasarama

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
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
// contiguous, with the duplicates between. They block until that is recorded, because sarama gives
// them no error to return. After the claim has ended they wait for two seconds at most. Messages
// that they could not record by then are not committed, also not by Commit, and are delivered
// again. A message that is passed over without a mark is recorded with the next mark, as its offset
// is gone anyway, and reported to Observer.PassedOver. ResetOffset does not pass what is not
// recorded.
//
// The handler may mark from any goroutine, and in any order. It must return when its channel of
// messages is closed, or its session's context has ended, and not before its goroutines have ended.
// Messages that it has not marked by then are given back, and later marks do nothing. It may
// collect any number of messages before it marks one; their claims are renewed meanwhile. A
// repetition of one of them is not yielded, and is done when that one is recorded. A message that
// is in flight elsewhere holds up its partition until it is done there, or free, or goes to Park
// after Attempts.BusyTimeout.
//
// When the oldest message without a mark is older than Attempts.BusyTimeout, the claim ends with an
// [*kafkaadapter.UnprocessableError] that wraps [ErrUnmarked]. A message that cannot be claimed
// goes to Config.Park, which is called until it returns nil. Without Park the claim ends with such
// an error. That is a message without an id, one whose id was used with another payload, and one
// that is uncertain. ConsumeClaim returns the error, and Observer.GroupError is called with it. The
// session ends, and the next one begins at the same message.
//
// Of Config it uses Deduper, ID, Scope, TopicName, RetryTopics, Fingerprint, Label, Park, Attempts
// (the backoff and BusyTimeout), Allow.NoID and Logger, and of Observer GroupError and the hooks
// about single messages, except Handled. Whatever else is set is an [*dedup.InputError], as are an
// empty group and a nil handler. All that Wrap returns is safe for concurrent use.
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
		{Name: "Allow.Skip", Set: cfg.Allow.Skip},
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

// topicPartition names a partition.
type topicPartition struct {
	topic     string
	partition int32
}

// wrapped is the handler that sarama sees.
type wrapped struct {
	inner  sarama.ConsumerGroupHandler
	engine *kafkadriver.Engine

	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]*wrappedSession
}

// Setup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Setup(session sarama.ConsumerGroupSession) error {
	s := newWrappedSession(session)
	w.mu.Lock()
	w.sessions[session] = s
	w.mu.Unlock()
	return w.inner.Setup(s)
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Cleanup(session sarama.ConsumerGroupSession) error {
	s := w.session(session)
	w.mu.Lock()
	delete(w.sessions, session)
	w.mu.Unlock()
	return w.inner.Cleanup(s)
}

func (w *wrapped) session(session sarama.ConsumerGroupSession) *wrappedSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sessions[session]; s != nil {
		return s
	}
	return newWrappedSession(session) // which has no claims
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (w *wrapped) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	s := w.session(session)
	c := &wrappedClaim{ConsumerGroupClaim: claim, engine: w.engine, session: s,
		at:  topicPartition{claim.Topic(), claim.Partition()},
		out: make(chan *sarama.ConsumerMessage), marking: make(chan struct{}, 1)}
	c.base = context.WithoutCancel(session.Context())
	c.ctx, c.stop = context.WithCancel(session.Context())
	s.add(c)
	var feeding sync.WaitGroup
	feeding.Go(c.feed)
	feeding.Go(c.watch)
	err := w.inner.ConsumeClaim(s, c)
	c.stop()
	s.remove(c)
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

func newWrappedSession(session sarama.ConsumerGroupSession) *wrappedSession {
	return &wrappedSession{ConsumerGroupSession: session,
		claims: make(map[topicPartition]*wrappedClaim)}
}

func (s *wrappedSession) add(c *wrappedClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// ResetOffset implements sarama.ConsumerGroupSession. Without a claim, as in Setup, it goes back
// from what the group has committed.
func (s *wrappedSession) ResetOffset(topic string, partition int32, offset int64,
	metadata string) {
	if c := s.claim(topic, partition); c != nil {
		c.reset(offset, metadata)
		return
	}
	s.ConsumerGroupSession.ResetOffset(topic, partition, offset, metadata)
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
	stop    context.CancelFunc
	tracker flow.Tracker
	early   []*heldMessage // without an id, before the first one with an id

	// marking is held by the one who ends claims.
	marking chan struct{}

	mu       sync.Mutex
	held     []*heldMessage // claimed and not ended, in the order of their offsets
	metadata string         // of the last mark
	passed   int64          // marked with the real session
	tired    bool           // a mark has given up: giveBack records what is marked later
	err      error          // why the claim cannot continue
}

// heldMessage is a message whose claim was won. Its claim belongs to the feed, and then to the one
// who is marking. The last fields are guarded by mu.
type heldMessage struct {
	msg         kafkaadapter.Message
	otherSource bool // its first topic is another one, so its record may be from there
	slot        flow.Slot
	request     dedup.Option
	answer      *dedup.Claim
	end         context.CancelFunc // of the renewal
	lost        bool               // that its claim was, is told

	since  time.Time      // it was yielded; zero: it was not yet
	done   bool           // marked by the handler
	copies []*heldMessage // that are done when it is recorded
}

// firstNoIDs is how many messages without an id, and none with one, end a claim; see
// kafkaadapter.Allow.
const firstNoIDs = 3

// Messages implements sarama.ConsumerGroupClaim.
func (c *wrappedClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// feed claims messages one by one and yields those that are won, until the claim ends.
func (c *wrappedClaim) feed() {
	defer close(c.out)
	defer c.stop()
	for {
		select {
		case m, open := <-c.ConsumerGroupClaim.Messages():
			if !open {
				return
			}
			if err := c.take(m); err != nil {
				c.fail(err)
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *wrappedClaim) take(m *sarama.ConsumerMessage) error {
	slot, err := c.tracker.Track(m.Offset)
	if err != nil {
		return err
	}
	h := &heldMessage{msg: messageOf(m), slot: slot}
	var bad error
	h.otherSource, bad = c.engine.Identify(&h.msg)
	switch {
	case c.engine.Park == nil || c.engine.Allow.NoID: // no message waits for an id
	case c.engine.HasIDs(c.at.topic, c.at.partition):
		for _, odd := range c.early {
			if err := c.park(odd, kafkaadapter.ErrNoID); err != nil || c.ctx.Err() != nil {
				return err
			}
		}
		c.early = nil
	case errors.Is(bad, kafkaadapter.ErrNoID):
		if c.early = append(c.early, h); len(c.early) == firstNoIDs {
			return c.unprocessable(c.early[0], kafkadriver.ErrFirstNoIDs)
		}
		return nil
	}
	if bad == nil {
		h.request = c.engine.RequestOf(&h.msg)
		bad, err = c.claim(h)
	}
	switch {
	case err != nil:
		return err
	case bad != nil:
		return c.park(h, bad)
	case h.end != nil:
		c.yield(h, m)
	}
	return nil
}

// yield gives a message that was won to the handler.
func (c *wrappedClaim) yield(h *heldMessage, m *sarama.ConsumerMessage) {
	c.mu.Lock()
	c.held = append(c.held, h)
	c.mu.Unlock()
	select {
	case c.out <- m:
		c.mu.Lock()
		h.since = time.Now()
		c.mu.Unlock()
	case <-c.ctx.Done():
	}
}

// claim asks until the message is won, done, or known to be one that cannot be claimed.
func (c *wrappedClaim) claim(h *heldMessage) (bad, err error) {
	var busy time.Time
	for n := 0; ; n++ {
		wait := c.engine.Pause(n, c.engine.Attempts.RetryMax)
		answer, err := c.engine.Deduper.Claim(c.ctx, h.msg.ID, h.request)
		var input *dedup.InputError
		switch {
		case err == nil:
			h.answer = answer
		case errors.Is(err, dedup.ErrClosed):
			return nil, err
		case errors.Is(err, driver.ErrUnreadable),
			errors.As(err, &input) && input.Field == "Key":
			return err, nil
		case errors.As(err, &input):
			return nil, err
		case c.ctx.Err() != nil:
			return nil, nil
		case n == 0:
			c.warn("the store cannot be asked", h, err)
		}
		switch {
		case err != nil:
		case answer.Outcome == dedup.Acquired:
			h.msg.Attempt = answer.Attempt
			_, h.end = answer.KeepAlive(c.base)
			return nil, nil
		case kafkadriver.Unprocessable(answer) != nil,
			answer.Outcome == dedup.Duplicate && c.unparked(h):
			return answer.Err(), nil
		case answer.Outcome == dedup.Duplicate:
			c.skip(h)
			c.pass()
			return nil, nil
		case answer.Outcome == dedup.InFlight && c.follows(h):
			return nil, nil
		case answer.Outcome == dedup.InFlight:
			if hook := c.engine.Observer.Waiting; hook != nil {
				hook(&h.msg)
			}
			if busy.IsZero() {
				busy = time.Now()
			}
			if c.engine.Park != nil && time.Since(busy) >= c.engine.Attempts.BusyTimeout {
				return kafkaadapter.ErrBusy, nil
			}
			if left := answer.Record.Remaining; left > 0 {
				wait = min(wait, left+time.Millisecond)
			}
		}
		if kafkadriver.Sleep(c.ctx, wait) != nil {
			return nil, nil
		}
	}
}

// unparked reports whether this very message was found to have failed by somebody who died before
// it was put aside.
func (c *wrappedClaim) unparked(h *heldMessage) bool {
	here := driver.Origin{Source: c.engine.Group() + "/" + c.at.topic}
	found := &h.answer.Record.Origin
	return kafkadriver.FoundFailed(h.answer) && found.Digest() == here.Digest() &&
		found.Partition == c.at.partition && found.Offset == h.msg.Offset
}

// follows makes a message a copy of one that this claim holds, and that the handler may mark after
// it has got later ones.
func (c *wrappedClaim) follows(h *heldMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, first := range c.held {
		if first.msg.ID == h.msg.ID && first.msg.Scope == h.msg.Scope &&
			len(first.copies) < c.engine.Tuning.HighWater {
			first.copies = append(first.copies, h)
			return true
		}
	}
	return false
}

func (c *wrappedClaim) skip(h *heldMessage) {
	if h.answer.Cause == driver.OtherSource && !h.otherSource {
		c.engine.SkippedOtherSource(&h.msg)
	}
	if hook := c.engine.Observer.Skipped; hook != nil {
		hook(&h.msg, h.answer.Cause, h.answer.Record.Age)
	}
	h.slot.Done()
}

func (c *wrappedClaim) unprocessable(h *heldMessage, reason error) error {
	return &kafkaadapter.UnprocessableError{Topic: c.at.topic, Partition: c.at.partition,
		Offset: h.msg.Offset, Err: reason}
}

// park puts a message aside that cannot be claimed.
func (c *wrappedClaim) park(h *heldMessage, reason error) error {
	if c.engine.Park == nil {
		return c.unprocessable(h, fmt.Errorf("there is no Config.Park: %w", reason))
	}
	for n := 0; ; n++ {
		err := c.callPark(h, reason)
		if err == nil {
			break
		}
		if c.ctx.Err() == nil {
			c.warn("message could not be parked", h, err)
		}
		if c.engine.Backoff(c.ctx, n) != nil {
			return nil
		}
	}
	if hook := c.engine.Observer.Parked; hook != nil {
		hook(&h.msg, reason)
	}
	h.slot.Done()
	c.pass()
	return nil
}

func (c *wrappedClaim) callPark(h *heldMessage, reason error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kafkasarama: Config.Park panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return c.engine.Park(c.ctx, &h.msg, reason)
}

func (c *wrappedClaim) warn(what string, h *heldMessage, err error) {
	c.engine.Logger.Warn("kafkasarama: "+what, "topic", c.at.topic, "partition", c.at.partition,
		"offset", h.msg.Offset, "error", err)
}

// mark records what was yielded below an offset, and marks what is contiguous.
func (c *wrappedClaim) mark(next int64, metadata string) {
	over, last := c.note(next, metadata)
	if hook := c.engine.Observer.PassedOver; hook != nil {
		for _, h := range over {
			hook(&h.msg)
		}
	}
	ctx, end := c.patience()
	defer end()
	if last || !c.begin(ctx) {
		return
	}
	defer c.over()
	left := c.marked()
	for n := 0; len(left) > 0; n++ {
		var err error
		left, err = c.record(ctx, left)
		switch {
		case err == nil:
			continue
		case n == 0:
			c.warn("effect is not known to be recorded", left[0], err)
		case errors.Is(err, dedup.ErrClosed):
			c.fail(err)
			c.stop()
		}
		if c.engine.Backoff(ctx, n) != nil { // not known to be recorded, so not marked
			for _, h := range left {
				c.unrecorded(h, err)
			}
			c.mu.Lock()
			c.tired = true
			c.mu.Unlock()
			return
		}
	}
	c.pass()
}

// note notes that the handler has ended what it got below an offset. It returns the messages that
// were passed over, and whether no more is recorded before the end. A message that is on its way to
// the handler was not yielded yet, unless it is the one that is marked.
func (c *wrappedClaim) note(next int64, metadata string) (over []*heldMessage, tired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata = metadata
	for _, h := range c.held {
		if !h.done && h.msg.Offset < next && (!h.since.IsZero() || h.msg.Offset == next-1) {
			h.done = true
			over = append(over, h)
		}
	}
	return over[:max(0, len(over)-1)], c.tired
}

// marked are the messages to record.
func (c *wrappedClaim) marked() []*heldMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.held), func(h *heldMessage) bool { return !h.done })
}

// patience is the context of a mark: it ends some time after the claim, because effects that have
// happened are to be recorded.
func (c *wrappedClaim) patience() (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.base)
	stop := context.AfterFunc(c.ctx, func() {
		_ = kafkadriver.Sleep(ctx, kafkadriver.CommitTimeout)
		cancel()
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// begin waits until nobody else ends claims.
func (c *wrappedClaim) begin(ctx context.Context) bool {
	select {
	case c.marking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *wrappedClaim) over() { <-c.marking }

// record ends claims in one exchange, and returns those of which it is not known whether they are
// on record, and why.
func (c *wrappedClaim) record(ctx context.Context,
	all []*heldMessage) (left []*heldMessage, why error) {
	done := make([]dedup.Completion, len(all))
	for i, h := range all {
		done[i] = dedup.Completion{Claim: h.answer, InTime: true}
	}
	errs := c.engine.Deduper.CompleteBatch(ctx, done)
	recorded := make(map[*heldMessage]bool, len(all))
	for i, h := range all {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if err == nil {
			if hook := c.engine.Observer.Recorded; hook != nil {
				hook(&h.msg, 0)
			}
		} else if errors.Is(err, dedup.ErrLeaseLost) {
			c.unrecorded(h, err)
			err = c.look(ctx, h)
		}
		if recorded[h] = err == nil; err != nil {
			left, why = append(left, h), err
		}
	}
	c.finish(recorded)
	return left, why
}

func (c *wrappedClaim) unrecorded(h *heldMessage, err error) {
	if hook := c.engine.Observer.Unrecorded; hook != nil && !h.lost {
		hook(&h.msg, err)
	}
	h.lost = true
}

// look sees what became of a message whose claim was lost before its record, and returns nil if
// another owner has recorded it. Otherwise it is claimed again, and the next exchange records it.
func (c *wrappedClaim) look(ctx context.Context, h *heldMessage) error {
	answer, err := c.engine.Deduper.Claim(ctx, h.msg.ID, h.request)
	switch {
	case err != nil:
		return err
	case answer.Outcome == dedup.Duplicate:
		return nil
	case answer.Outcome == dedup.Acquired:
		h.end()
		h.answer = answer
		_, h.end = answer.KeepAlive(c.base)
	}
	return dedup.ErrLeaseLost
}

// finish lets go of messages that are on record, and of their copies.
func (c *wrappedClaim) finish(recorded map[*heldMessage]bool) {
	var copies []*heldMessage
	c.mu.Lock()
	c.held = slices.DeleteFunc(c.held, func(h *heldMessage) bool {
		if recorded[h] {
			copies = append(copies, h.copies...)
		}
		return recorded[h]
	})
	c.mu.Unlock()
	for h, on := range recorded {
		if on {
			h.end()
			h.slot.Done()
		}
	}
	for _, h := range copies {
		c.skip(h)
	}
}

// pass marks what is contiguous with the real session.
func (c *wrappedClaim) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next, ok := c.tracker.Watermark(); ok && next > c.passed {
		c.passed = next
		c.session.ConsumerGroupSession.MarkOffset(c.at.topic, c.at.partition, next, c.metadata)
	}
}

// reset goes back, and never beyond what is recorded.
func (c *wrappedClaim) reset(offset int64, metadata string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, ok := c.tracker.Watermark()
	if !ok {
		next = c.InitialOffset()
	}
	if offset = min(offset, next); offset >= 0 { // else nothing is committed to go back from
		c.session.ConsumerGroupSession.ResetOffset(c.at.topic, c.at.partition, offset, metadata)
	}
}

// watch ends the claim when the handler does not mark a message.
func (c *wrappedClaim) watch() {
	limit := c.engine.Attempts.BusyTimeout
	for kafkadriver.Sleep(c.ctx, max(limit/10, time.Millisecond)) == nil {
		c.mu.Lock()
		var oldest *heldMessage
		if len(c.held) > 0 && !c.held[0].done && !c.held[0].since.IsZero() &&
			time.Since(c.held[0].since) >= limit {
			oldest = c.held[0]
		}
		c.mu.Unlock()
		if oldest != nil {
			c.fail(c.unprocessable(oldest, fmt.Errorf("%w for %v", ErrUnmarked, limit)))
			c.stop()
		}
	}
}

// fail notes and reports why the claim cannot continue. The handler may take long to return.
func (c *wrappedClaim) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	c.err = cmp.Or(c.err, err)
	c.mu.Unlock()
	if first {
		c.engine.GroupError(err)
	}
}

func (c *wrappedClaim) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// giveBack releases the claims of messages that were not marked, and tries a last time to record
// those that were. If that fails their claims lapse: the effects have happened.
func (c *wrappedClaim) giveBack() {
	_ = c.begin(c.base) // a mark does not last long after the claim
	defer c.over()
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	if len(held) == 0 {
		return
	}
	done := make([]dedup.Completion, len(held))
	for i, h := range held {
		h.end()
		done[i] = dedup.Completion{Claim: h.answer, InTime: true}
		if !h.done {
			done[i] = dedup.Completion{Claim: h.answer, Err: kafkadriver.ErrRevoked,
				NotAttempted: h.since.IsZero()}
		}
	}
	ctx, cancel := context.WithTimeout(c.base, kafkadriver.CommitTimeout)
	defer cancel()
	c.engine.Deduper.CompleteBatch(ctx, done)
}
