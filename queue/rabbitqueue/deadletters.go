package rabbitqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/queue"
)

// Headers of a dead letter, as package kafkaadapter has them.
const (
	HeaderID    = "onceward-id"    // the id of the message
	HeaderScope = "onceward-scope" // the scope of its key
	HeaderError = "onceward-error" // why it was parked
)

var errRefused = errors.New("rabbitqueue: RabbitMQ refused a dead letter (basic.nack)")

// deadLetters sends dead letters, one at a time, over a connection that it opens for the first one.
type deadLetters struct {
	dial  func() (*amqp.Connection, error)
	queue string

	mu      sync.Mutex
	closed  bool
	conn    *amqp.Connection
	channel *amqp.Channel
	returns <-chan amqp.Return
}

// park sends a dead letter, and returns when RabbitMQ has confirmed it. RabbitMQ first returns a
// dead letter that no queue takes, and then confirms it, too.
func (l *deadLetters) park(ctx context.Context, d *queue.Delivery, m *amqp.Delivery,
	reason error) error {
	dead := amqp.Publishing{Headers: amqp.Table{}, Body: m.Body, DeliveryMode: amqp.Persistent,
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, MessageId: m.MessageId,
		CorrelationId: m.CorrelationId, ReplyTo: m.ReplyTo, Timestamp: m.Timestamp, Type: m.Type,
		AppId: m.AppId, Priority: m.Priority}
	maps.Copy(dead.Headers, m.Headers)
	maps.DeleteFunc(dead.Headers, func(name string, _ any) bool { // RabbitMQ would act on them
		return name == "CC" || name == "BCC" || strings.HasPrefix(name, "x-")
	})
	dead.Headers[HeaderID], dead.Headers[HeaderScope] = d.ID, d.Scope
	dead.Headers[HeaderError] = strings.Join(strings.Fields(reason.Error()), " ")

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return err
	}
	err := l.send(ctx, dead)
	if err != nil { // the next dead letter must not take its confirmation
		go l.conn.CloseDeadline(time.Now().Add(closeTimeout)) //nolint:errcheck // it is given up
		l.conn = nil
	}
	return err
}

func (l *deadLetters) send(ctx context.Context, dead amqp.Publishing) error {
	const mandatory, immediate = true, false
	confirmation, err := l.channel.PublishWithDeferredConfirm("", l.queue, mandatory, immediate,
		dead)
	if err != nil {
		return fmt.Errorf("rabbitqueue: %w", err)
	}
	switch taken, err := confirmation.WaitContext(ctx); {
	case err != nil:
		return context.Cause(ctx)
	case !taken:
		return errRefused
	}
	// The return comes before the confirmation, and the client's one reader has put it there.
	select {
	case r, ok := <-l.returns:
		if ok {
			return fmt.Errorf("rabbitqueue: no queue took a dead letter: %s: %d %s", l.queue,
				r.ReplyCode, r.ReplyText)
		}
	default:
	}
	return nil
}

// open opens a connection if there is none.
func (l *deadLetters) open() error {
	switch {
	case l.closed:
		return amqp.ErrClosed
	case l.conn != nil && !l.conn.IsClosed() && !l.channel.IsClosed():
		return nil
	}
	conn, err := l.dial()
	if err != nil {
		return fmt.Errorf("rabbitqueue: dial: %w", err)
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		_ = conn.CloseDeadline(time.Now().Add(closeTimeout))
		return fmt.Errorf("rabbitqueue: open a channel: %w", err)
	}
	if l.conn != nil {
		_ = l.conn.CloseDeadline(time.Now().Add(closeTimeout))
	}
	l.conn, l.channel, l.returns = conn, ch, ch.NotifyReturn(make(chan amqp.Return, 1))
	return nil
}

func (l *deadLetters) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil && !l.conn.IsClosed() {
		_ = l.conn.CloseDeadline(time.Now().Add(closeTimeout))
	}
}
