package rabbitqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

const (
	defaultPrefetch = 256
	closeTimeout    = 5 * time.Second
)

// Options configures a consumer, in addition to [queue.Config]. Queue and Dial are required.
type Options struct {
	// Queue is the name of the queue. It must exist. Required.
	Queue string
	// Dial opens a connection, for example with amqp.Dial, which gives up after 30 seconds. Leave
	// amqp.Config.Recovery nil: Dial is called whenever there is no connection. It is also called
	// once more for DeadLetters, which have a connection of their own: when RabbitMQ runs out of
	// memory or disk, it stops reading from connections that publish. The Source closes the
	// connections. Required.
	Dial func() (*amqp.Connection, error)
	// ID finds the id of a message; empty: it has none. Default: the property message-id.
	ID func(m *amqp.Delivery) string
	// Prefetch bounds the messages that are delivered and not acknowledged, including those that
	// wait for their next attempt. Set it well above [queue.Config].Buffer. Default 256.
	Prefetch int
	// DeadLetters is the queue that gets the messages that cannot be processed, with their headers
	// and the Header constants of this package. They are published through the default exchange,
	// and RabbitMQ confirms each. Default: [queue.Config].Park.
	DeadLetters string
}

// Source receives the messages of one queue. It is safe for concurrent use.
type Source struct {
	opts Options
	dead deadLetters

	mu     sync.Mutex
	closed bool
	in     *consumer
	opened *opening      // that is under way
	waits  chan struct{} // closed by Close: nacks need not wait
}

// opening is an open that is under way. Several calls of Fetch may wait for it.
type opening struct {
	done     chan struct{}
	consumer *consumer // set before done is closed
}

// consumer is a connection with a subscription. err says why there is none.
type consumer struct {
	conn       *amqp.Connection
	deliveries <-chan amqp.Delivery
	ends       <-chan *amqp.Error
	err        error
}

var _ queue.Source = (*Source)(nil)

// New returns the source of a queue. It contacts nobody. An [*dedup.InputError] names a bad option.
func New(opts Options) (*Source, error) {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "rabbitqueue.Options." + field, Reason: reason}
	}
	switch {
	case opts.Queue == "":
		return nil, bad("Queue", "is empty")
	case opts.Dial == nil:
		return nil, bad("Dial", "is nil")
	case opts.Prefetch < 0 || opts.Prefetch > 65535:
		return nil, bad("Prefetch", fmt.Sprintf("is %d, must be 1 to 65535", opts.Prefetch))
	case opts.DeadLetters == opts.Queue:
		return nil, bad("DeadLetters", "is the queue itself")
	}
	if opts.Prefetch == 0 {
		opts.Prefetch = defaultPrefetch
	}
	if opts.ID == nil {
		opts.ID = func(m *amqp.Delivery) string { return m.MessageId }
	}
	return &Source{opts: opts, dead: deadLetters{dial: opts.Dial, queue: opts.DeadLetters},
		waits: make(chan struct{})}, nil
}

// Consume handles the messages of a queue until ctx ends: [queue.Consumer.Run] with the source of
// [New]. It returns their errors.
func Consume(ctx context.Context, cfg queue.Config, opts Options) error {
	src, err := New(opts)
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

// Close closes the connections. Call it after [queue.Consumer.Run] has returned. RabbitMQ
// redelivers messages that are not acknowledged. Close waits at most five seconds for RabbitMQ. A
// second call does nothing.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.waits)
	var both sync.WaitGroup // one after the other they would wait twice for a broker that hangs
	both.Go(s.in.close)
	both.Go(s.dead.close)
	both.Wait()
}

// Fetch implements [queue.Source]. [dedup.IsPermanent] is true of its error when the queue does not
// exist, and when the source is closed. After any other error the next call dials again.
func (s *Source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	in, err := s.consumer(ctx)
	if err != nil {
		return nil, err
	}
	var ds []*queue.Delivery
	select {
	case m, ok := <-in.deliveries:
		if !ok {
			return nil, s.lost(in)
		}
		ds = append(ds, s.Delivery(&m))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for len(ds) < limit {
		select {
		case m, ok := <-in.deliveries:
			if !ok {
				return ds, nil // the next call finds out
			}
			ds = append(ds, s.Delivery(&m))
		default:
			return ds, nil
		}
	}
	return ds, nil
}

// consumer returns the consumer that is open, or opens one. Opening takes until the broker answers.
// If ctx ends before that, the next call gets the consumer.
func (s *Source) consumer(ctx context.Context) (*consumer, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, dedup.Permanent(errors.New("rabbitqueue: the source is closed"))
	}
	if s.in != nil {
		defer s.mu.Unlock()
		return s.in, nil
	}
	if s.opened == nil {
		o := &opening{done: make(chan struct{})}
		s.opened = o
		go func() {
			o.consumer = s.open()
			close(o.done)
		}()
	}
	opened := s.opened
	s.mu.Unlock()
	select {
	case <-opened.done:
		return opened.consumer, opened.consumer.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// open dials and subscribes. A connection that is there after Close is closed at once.
func (s *Source) open() *consumer {
	c := &consumer{}
	c.conn, c.err = s.opts.Dial()
	if c.err == nil {
		c.err = s.subscribe(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = nil
	switch {
	case c.err != nil:
		c.close()
		c.err = final(c.err)
	case s.closed:
		c.close()
		c.err = dedup.Permanent(amqp.ErrClosed)
	default:
		s.in = c
	}
	return c
}

func (s *Source) subscribe(c *consumer) error {
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	ch, err := c.conn.Channel()
	if err != nil {
		return err
	}
	c.ends = ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Qos(s.opts.Prefetch, 0, false); err != nil {
		return err
	}
	c.deliveries, err = ch.Consume(s.opts.Queue, "", autoAck, exclusive, noLocal, noWait, nil)
	return err
}

// lost forgets a subscription that has ended, and returns why it ended. It closes the connection,
// which may still be open: when the queue is deleted or moves, RabbitMQ ends only the subscription.
func (s *Source) lost(in *consumer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == in {
		s.in = nil
	}
	var why error = amqp.ErrClosed
	select {
	case end, ok := <-in.ends:
		if ok {
			why = end
		}
	default:
	}
	in.close()
	return fmt.Errorf("rabbitqueue: the subscription has ended: %w", why)
}

func (c *consumer) close() {
	if c != nil && c.conn != nil && !c.conn.IsClosed() {
		_ = c.conn.CloseDeadline(time.Now().Add(closeTimeout))
	}
}

// final marks an error that every later call would get, too. RabbitMQ also says "not found" while
// the node of a queue is down, but only for a missing queue does it say "no queue".
func final(err error) error {
	var why *amqp.Error
	if errors.As(err, &why) && why.Code == amqp.NotFound &&
		strings.Contains(why.Reason, "no queue") {
		return dedup.Permanent(fmt.Errorf("rabbitqueue: %w", err))
	}
	return fmt.Errorf("rabbitqueue: %w", err)
}

// Delivery makes the delivery of a message of the queue. Use it with [queue.Consumer.Handle] in a
// loop over a channel of your own, which must not acknowledge by itself.
func (s *Source) Delivery(m *amqp.Delivery) *queue.Delivery {
	d := &queue.Delivery{ID: s.opts.ID(m), Scope: s.opts.Queue, Payload: m.Body, Raw: m,
		Deliveries: deliveries(m),
		Ack:        func(context.Context) error { return m.Ack(false) },
		Nack: func(_ context.Context, after time.Duration) error {
			if after <= 0 {
				return m.Nack(false, true)
			}
			go s.nackAfter(m, after)
			return nil
		}}
	if s.opts.DeadLetters != "" {
		d.Park = func(ctx context.Context, reason error) error {
			return s.dead.park(ctx, d, m, reason)
		}
	}
	return d
}

// deliveries is how often a message was delivered. A classic queue says only whether it was
// delivered before.
func deliveries(m *amqp.Delivery) int {
	if n, ok := m.Headers["x-delivery-count"].(int64); ok {
		return int(n) + 1
	}
	if m.Redelivered {
		return 2
	}
	return 1
}

// nackAfter has a message redelivered when its time has come. If its channel is gone, RabbitMQ has
// redelivered it already. When the source is closed, RabbitMQ redelivers it because its connection
// ends.
func (s *Source) nackAfter(m *amqp.Delivery, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = m.Nack(false, true)
	case <-s.waits:
	}
}
