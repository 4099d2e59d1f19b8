package pubsubqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// Attributes of a dead letter, as package kafkaadapter has them.
const (
	AttributeID    = "onceward-id"    // the id of the message
	AttributeScope = "onceward-scope" // the scope of its key
	AttributeError = "onceward-error" // why it was parked
)

// Options configures a consumer, in addition to [queue.Config]. The zero value is usable.
type Options struct {
	// IDAttribute is the attribute with the id of the message. Default "id".
	IDAttribute string
	// DeadLetters publishes messages that cannot be processed, with their attributes and the
	// Attribute constants of this package. The caller stops it. Default: [queue.Config].Park.
	DeadLetters *pubsub.Publisher
}

// Source receives the messages of one subscription. It is safe for concurrent use. The first Fetch
// starts to receive; Close ends it.
type Source struct {
	sub  *pubsub.Subscriber
	opts Options
	ctx  context.Context // of Receive
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	waits  sync.WaitGroup // nacks that wait for their time; begun while mu is held

	begin    sync.Once
	messages chan *queue.Delivery
	ended    chan struct{}
	err      error // of Receive, set before ended is closed
}

var _ queue.Source = (*Source)(nil)

// New returns the source of a subscription. It contacts nobody. An [*dedup.InputError] says that
// the subscriber is nil, or does not extend deadlines. The settings in sub.ReceiveSettings apply:
// set MaxOutstandingMessages to a little more than [queue.Config].Buffer.
func New(sub *pubsub.Subscriber, opts Options) (*Source, error) {
	switch {
	case sub == nil:
		return nil, &dedup.InputError{Field: "pubsubqueue.Subscriber", Reason: "is nil"}
	case sub.ReceiveSettings.MaxExtension < 0:
		return nil, &dedup.InputError{Field: "pubsubqueue.ReceiveSettings.MaxExtension",
			Reason: "is negative: a message would be delivered again while its handler works"}
	}
	opts.IDAttribute = cmp.Or(opts.IDAttribute, "id")
	s := &Source{sub: sub, opts: opts, messages: make(chan *queue.Delivery),
		ended: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Consume handles the messages of a subscription until ctx ends: [queue.Consumer.Run] with the
// source of [New]. It returns their errors.
func Consume(ctx context.Context, sub *pubsub.Subscriber, cfg queue.Config, opts Options) error {
	src, err := New(sub, opts)
	if err != nil {
		return err
	}
	defer src.Close()
	c, err := queue.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx, src)
}

// Close ends the receiving. Call it after [queue.Consumer.Run] has returned. Messages that wait are
// nacked. Close returns when the client has sent its acknowledgements, or when its ShutdownOptions
// end that.
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.begin.Do(func() { close(s.ended) })
	s.waits.Wait()
	<-s.ended
}

// Fetch implements [queue.Source]. If its context has not ended, an error is that of the client,
// which has given up; [dedup.IsPermanent] is true of it.
func (s *Source) Fetch(ctx context.Context, limit int) (ds []*queue.Delivery, err error) {
	s.begin.Do(func() { go s.receive() })
	select {
	case d := <-s.messages:
		ds = append(ds, d)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.ended:
		return nil, dedup.Permanent(cmp.Or(s.err, errors.New("pubsubqueue: the source is closed")))
	}
	for len(ds) < limit {
		select {
		case d := <-s.messages:
			ds = append(ds, d)
		default:
			return ds, nil
		}
	}
	return ds, nil
}

func (s *Source) receive() {
	defer close(s.ended)
	s.err = s.sub.Receive(s.ctx, func(ctx context.Context, m *pubsub.Message) {
		select {
		case s.messages <- s.delivery(m):
		case <-ctx.Done():
			m.Nack()
		}
	})
}

func (s *Source) delivery(m *pubsub.Message) *queue.Delivery {
	d := &queue.Delivery{ID: cmp.Or(m.Attributes[s.opts.IDAttribute], m.ID), Scope: s.sub.String(),
		Key: m.OrderingKey, Payload: m.Data, Raw: m}
	if m.DeliveryAttempt != nil { // of a subscription with a dead-letter policy
		d.Deliveries = *m.DeliveryAttempt
	}
	d.Ack = func(ctx context.Context) error {
		_, err := m.AckWithResult().Get(ctx)
		return err
	}
	d.Nack = func(_ context.Context, after time.Duration) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if after <= 0 || m.OrderingKey != "" || s.closed {
			m.Nack()
			return nil
		}
		s.waits.Go(func() { s.nackAfter(m, after) })
		return nil
	}
	if s.opts.DeadLetters != nil {
		d.Park = func(ctx context.Context, reason error) error { return s.park(ctx, d, m, reason) }
	}
	return d
}

// nackAfter holds a message until it is to be redelivered. The client extends its deadline
// meanwhile.
func (s *Source) nackAfter(m *pubsub.Message, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
	m.Nack()
}

func (s *Source) park(ctx context.Context, d *queue.Delivery, m *pubsub.Message,
	reason error) error {
	dead := &pubsub.Message{Data: m.Data, Attributes: map[string]string{}}
	maps.Copy(dead.Attributes, m.Attributes)
	dead.Attributes[AttributeID], dead.Attributes[AttributeScope] = d.ID, d.Scope
	text := strings.Join(strings.Fields(strings.ToValidUTF8(reason.Error(), "")), " ")
	text = text[:min(len(text), 1024)] // the longest value of an attribute
	dead.Attributes[AttributeError] = strings.ToValidUTF8(text, "")
	_, err := s.opts.DeadLetters.Publish(ctx, dead).Get(ctx)
	return err
}
