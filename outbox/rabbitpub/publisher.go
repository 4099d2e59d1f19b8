// Package rabbitpub publishes the messages of an outbox to RabbitMQ.
//
//	publisher, err := rabbitpub.New(rabbitpub.Config{
//		Dial: func() (*amqp.Connection, error) { return amqp.Dial(url) },
//	})
//	...
//	defer publisher.Close()
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, ...})
//
// A message's topic is its routing key. The message is persistent, and mandatory: if no queue takes
// it, it stays in the outbox and is tried again. Otherwise it is acknowledged when RabbitMQ
// confirms it: then every durable queue has it on disk, and every quorum queue on a majority of its
// replicas (rabbitmq.com/docs/confirms).
//
// Message.ID is the property message-id, and the header onceward-id. RabbitMQ does not deduplicate,
// so consumers do. A header that occurs more than once is sent as an array of its values; a nil
// value is sent as an empty one.
//
// # Order
//
// A key has only one message on its way, and the next one follows after the confirmation: a full
// queue may refuse one message (overflow reject-publish) and accept the next. The key itself is not
// sent: if consumers need it, insert it as a header.
//
// # Outages
//
// After the connection is lost, the next call dials again. While RabbitMQ blocks the connection,
// because of an alarm about memory or disk (rabbitmq.com/docs/connection-blocked), calls fail at
// once. The client notices a frozen broker after three heartbeats, 30 seconds by default. Meanwhile
// calls wait until their context ends; a call that is writing waits until the connection is closed.
package rabbitpub

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/outbox"
)

// DefaultMaxSize is the size of the largest payload that RabbitMQ 4 takes by default, in bytes.
const DefaultMaxSize = 16 << 20

const (
	maxIdle      = 16 // channels that are kept open
	maxName      = 255
	closeTimeout = 5 * time.Second
)

// Config says how to reach RabbitMQ. Dial is required.
type Config struct {
	// Dial opens a connection, for example with amqp.Dial, which gives up after 30 seconds. Leave
	// amqp.Config.Recovery nil: the Publisher calls Dial whenever it has no connection, one call at
	// a time. It closes the connection. No default.
	Dial func() (*amqp.Connection, error)
	// Exchange takes the messages. Default: the default exchange of RabbitMQ, which gives a message
	// to the queue with the name of its topic.
	Exchange string
	// MaxSize is the max_message_size of RabbitMQ, in bytes. For a larger payload RabbitMQ closes
	// the channel, and all messages on their way fail. So [Publisher.Check] refuses such a message
	// before it is sent. Default: [DefaultMaxSize].
	MaxSize int
}

// Publisher sends messages to RabbitMQ, those of one topic and key in their order. Make it with
// [New]. It is safe for concurrent use.
type Publisher struct {
	cfg     Config
	idle    chan *channel
	blocked atomic.Pointer[string] // why RabbitMQ blocks the connection, or nil

	mu     sync.Mutex
	conn   *amqp.Connection
	closed bool
}

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New checks the configuration and does not dial yet. An [*outbox.InputError] names what is wrong.
func New(cfg Config) (*Publisher, error) {
	if cfg.MaxSize == 0 {
		cfg.MaxSize = DefaultMaxSize
	}
	switch {
	case cfg.Dial == nil:
		return nil, &outbox.InputError{Field: "rabbitpub.Config.Dial", Reason: "is nil"}
	case cfg.MaxSize < 1:
		return nil, &outbox.InputError{Field: "rabbitpub.Config.MaxSize",
			Reason: fmt.Sprintf("is %d, must be at least 1", cfg.MaxSize)}
	}
	return &Publisher{cfg: cfg, idle: make(chan *channel, maxIdle)}, nil
}

var (
	errClosed       = errors.New("rabbitpub: the publisher is closed")
	errNoConnection = errors.New("rabbitpub: dial: Dial has returned no connection")
)

// Close closes the connection. Call it when every relay that uses the Publisher has stopped. Later
// calls of Publish fail. Close waits for a running call of Dial, and up to five seconds for
// RabbitMQ.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn == nil || p.conn.IsClosed() {
		return nil
	}
	return p.conn.CloseDeadline(time.Now().Add(closeTimeout))
}

// Check refuses a message for which RabbitMQ would close the channel or the connection, so that all
// messages on their way fail: one with a payload larger than MaxSize, or with a header name of more
// than 255 bytes. It also refuses the headers CC and BCC, by which RabbitMQ sends to other queues.
func (p *Publisher) Check(m *outbox.Message) error {
	if len(m.Payload) > p.cfg.MaxSize {
		return fmt.Errorf("rabbitpub: the payload is %d bytes, more than Config.MaxSize, %d",
			len(m.Payload), p.cfg.MaxSize)
	}
	for _, h := range m.Headers {
		if len(h.Key) > maxName || h.Key == "CC" || h.Key == "BCC" {
			return fmt.Errorf("rabbitpub: RabbitMQ takes no header with the name %q", h.Key)
		}
	}
	return nil
}

// Publish sends the messages with [outbox.PublishEach], 256 at once, on a channel that no other
// call uses meanwhile. When ctx ends it returns soon, and a message that is not confirmed counts as
// failed, although RabbitMQ may have it.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	c, err := p.take(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	results := outbox.PublishEach(ctx, messages, parallel,
		func(ctx context.Context, m *outbox.Message) error {
			return c.publish(ctx, p.cfg.Exchange, m)
		})
	if ctx.Err() == nil {
		p.put(c)
	} else {
		// The next call would get the confirmations and returns of messages that are on their way.
		go c.discard()
	}
	return results
}

// take returns a channel. Opening a channel takes until the broker answers, so take returns when
// ctx ends; a later call then gets the channel.
func (p *Publisher) take(ctx context.Context) (*channel, error) {
	if why := p.blocked.Load(); why != nil {
		return nil, fmt.Errorf("rabbitpub: RabbitMQ blocks the connection: %s", *why)
	}
	opened, failed := make(chan *channel), make(chan error, 1)
	go func() {
		defer func() { // the relay recovers no panic of this goroutine
			if v := recover(); v != nil {
				failed <- fmt.Errorf("rabbitpub: dial panicked: %v\n%s", v, debug.Stack())
			}
		}()
		c, err := p.channel()
		if err != nil {
			failed <- err
			return
		}
		select {
		case opened <- c:
		case <-ctx.Done():
			p.put(c)
		}
	}()
	select {
	case c := <-opened:
		return c, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *Publisher) put(c *channel) {
	select {
	case p.idle <- c:
	default:
		go c.discard()
	}
}

// channel returns an idle channel, or opens one.
func (p *Publisher) channel() (*channel, error) {
	for {
		select {
		case c := <-p.idle:
			if !c.IsClosed() {
				return c, nil
			}
		default:
			conn, err := p.connection()
			if err != nil {
				return nil, err
			}
			return open(conn)
		}
	}
}

func (p *Publisher) connection() (*amqp.Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errClosed
	case p.conn != nil && !p.conn.IsClosed():
		return p.conn, nil
	}
	conn, err := p.cfg.Dial()
	if err != nil {
		return nil, fmt.Errorf("rabbitpub: dial: %w", err)
	}
	if conn == nil {
		return nil, errNoConnection
	}
	go p.watch(conn.NotifyBlocked(make(chan amqp.Blocking, 1)))
	p.conn = conn
	return conn, nil
}

// watch records whether RabbitMQ blocks the connection, until that ends.
func (p *Publisher) watch(notices <-chan amqp.Blocking) {
	var why *string
	for notice := range notices {
		p.blocked.CompareAndSwap(why, nil)
		why = nil
		if notice.Active {
			why = &notice.Reason
			p.blocked.Store(why)
		}
	}
	p.blocked.CompareAndSwap(why, nil)
}
