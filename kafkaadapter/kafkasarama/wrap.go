package kafkasarama

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// ErrUnmarked: a wrapped handler got a message and marked neither it nor a later one for
// Attempts.BusyTimeout.
var ErrUnmarked = errors.New("kafkasarama: the handler did not mark the message")

// Wrap lets an existing handler try this package with one line of code. It cannot cancel the
// handling of one message, retries nothing, and costs two round trips for each message; use
// [Consume] for a new program. The claim that the handler sees yields only messages that were won,
// and a mark is passed on to the group after the record.
//
//	handler, err := kafkasarama.Wrap("payments", handler, kafkaadapter.Config{Deduper: d})
//
// A mark means what it means to sarama: everything that was yielded up to the marked message is
// done. MarkMessage and MarkOffset record these messages in one exchange, and then mark the
// partition up to the first message that is not done, including the duplicates in between. They
// block until these messages are recorded, because sarama gives them no error to return. After the
// claim has ended they wait for at most two seconds. Messages that they could not record by then
// are not committed, even by Commit, and are delivered again. A message that is passed over without
// a mark is recorded with the next mark, because that mark covers its offset anyway, and reported
// to Observer.PassedOver. ResetOffset does not go beyond what is recorded.
//
// The handler may mark from any goroutine, and in any order. It must return when its channel of
// messages is closed, or its session's context has ended, and not before its goroutines have ended.
// Messages that it has not marked by then are given back, and later marks do nothing. It may
// collect any number of messages before it marks one; their claims are renewed meanwhile. A
// duplicate of such a message is not yielded, and is done when that message is recorded. A message
// that is in flight elsewhere holds up its partition until it is done there, or free, or goes to
// Park after Attempts.BusyTimeout.
//
// When the oldest message without a mark is older than Attempts.BusyTimeout, the claim ends with an
// [*kafkaadapter.UnprocessableError] that wraps [ErrUnmarked]. A message cannot be claimed if it
// has no id, its id was used with another payload, or it is uncertain. Such a message goes to
// Config.Park, which is called until it returns nil. Without Park the claim ends with an
// [*kafkaadapter.UnprocessableError]. ConsumeClaim returns the error, and Observer.GroupError is
// called with it. The session ends, and the next one begins at the same message.
//
// Wrap uses these fields of Config: Deduper, ID, Scope, TopicName, RetryTopics, Fingerprint, Label,
// Park, Attempts (the backoff and BusyTimeout), Allow.NoID and Logger, and of Observer GroupError
// and the hooks about single messages, except Handled. For any other field that is set, an empty
// group or a nil handler, the error is an [*dedup.InputError]. Everything that Wrap returns is safe
// for concurrent use.
func Wrap(group string, handler sarama.ConsumerGroupHandler,
	cfg kafkaadapter.Config) (sarama.ConsumerGroupHandler, error) {
	if handler == nil {
		return nil, &dedup.InputError{Field: "handler", Reason: "is nil"}
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
	return &wrapped{inner: handler, engine: engine}, nil
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

	sessions sync.Map // by sarama's session: the *wrappedSession
}

// Setup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Setup(session sarama.ConsumerGroupSession) error {
	s := &wrappedSession{ConsumerGroupSession: session}
	w.sessions.Store(session, s)
	return w.inner.Setup(s)
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (w *wrapped) Cleanup(session sarama.ConsumerGroupSession) error {
	s := w.session(session)
	w.sessions.Delete(session)
	return w.inner.Cleanup(s)
}

func (w *wrapped) session(session sarama.ConsumerGroupSession) *wrappedSession {
	if s, ok := w.sessions.Load(session); ok {
		return s.(*wrappedSession) //nolint:errcheck,forcetypeassert // the map has nothing else
	}
	return &wrappedSession{ConsumerGroupSession: session} // which has no claims
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
	s.claims.Store(c.at, c)
	var feeding sync.WaitGroup
	feeding.Go(c.feed)
	feeding.Go(c.watch)
	err := w.inner.ConsumeClaim(s, c)
	c.stop()
	s.claims.Delete(c.at)
	feeding.Wait()
	c.giveBack()
	return cmp.Or(c.failed(), err)
}

// wrappedSession is the session that the inner handler sees.
type wrappedSession struct {
	sarama.ConsumerGroupSession
	claims sync.Map // by topicPartition: the *wrappedClaim
}

func (s *wrappedSession) claim(topic string, partition int32) *wrappedClaim {
	found, _ := s.claims.Load(topicPartition{topic, partition})
	c, _ := found.(*wrappedClaim) // nil when there is none
	return c
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

// ResetOffset implements sarama.ConsumerGroupSession. Without a claim, as in Setup, sarama's own
// session resets the group's committed offset.
func (s *wrappedSession) ResetOffset(topic string, partition int32, offset int64,
	metadata string) {
	if c := s.claim(topic, partition); c != nil {
		c.reset(offset, metadata)
		return
	}
	s.ConsumerGroupSession.ResetOffset(topic, partition, offset, metadata)
}
