package rabbitpub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/outbox"
)

// parallel is how many messages of a call are on their way at once. Each may be returned, and the
// client drops a return that nobody takes within five seconds. So the channel of returns has room
// for all of them.
const parallel = 256

var errNack = errors.New("rabbitpub: RabbitMQ refused the message (basic.nack); is a queue full?")

// channel is an AMQP channel that confirms messages.
type channel struct {
	*amqp.Channel
	returns <-chan amqp.Return
	ends    <-chan *amqp.Error

	mu       sync.Mutex
	returned []amqp.Return
	end      error // why it was closed
}

func open(conn *amqp.Connection) (*channel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("rabbitpub: open a channel: %w", err)
	}
	c := &channel{
		Channel: ch,
		returns: ch.NotifyReturn(make(chan amqp.Return, parallel)),
		ends:    ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := ch.Confirm(false); err != nil {
		c.discard()
		return nil, fmt.Errorf("rabbitpub: open a channel: %w", err)
	}
	return c, nil
}

// discard closes the channel. It waits for the broker, or for the end of the connection.
func (c *channel) discard() { _ = c.Close() }

func (c *channel) publish(ctx context.Context, exchange string, m *outbox.Message) error {
	const mandatory, immediate = true, false
	confirmation, err := c.PublishWithDeferredConfirm(exchange, m.Topic, mandatory, immediate,
		amqp.Publishing{MessageId: m.ID, DeliveryMode: amqp.Persistent, Headers: table(m.Headers),
			Body: m.Payload})
	if err != nil {
		return c.why(ctx, err)
	}
	acknowledged, err := confirmation.WaitContext(ctx)
	switch {
	case err != nil:
		return context.Cause(ctx)
	case !acknowledged && c.IsClosed():
		return c.why(ctx, amqp.ErrClosed)
	case !acknowledged:
		return errNack
	}
	return c.unroutable(m.ID)
}

// unroutable returns an error when a confirmed message was returned, because no queue took it.
// RabbitMQ sends the return before the confirmation. The client has one reader, which puts the
// return into c.returns before it wakes the waiter for the confirmation. So the return is there. A
// return has no number: when two messages have the same ID, each return is taken for one of them.
func (c *channel) unroutable(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.returns) > 0 {
		c.returned = append(c.returned, <-c.returns)
	}
	at := slices.IndexFunc(c.returned, func(r amqp.Return) bool { return r.MessageId == id })
	if at < 0 {
		return nil
	}
	r := c.returned[at]
	c.returned = slices.Delete(c.returned, at, at+1)
	return fmt.Errorf("rabbitpub: exchange %q has no queue for routing key %q: %d %s", r.Exchange,
		r.RoutingKey, r.ReplyCode, r.ReplyText)
}

// why returns the reason of the broker for closing the channel, if there is one. The client marks a
// channel as closed before it passes on the reason, and closes c.ends afterwards.
func (c *channel) why(ctx context.Context, otherwise error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end == nil && c.IsClosed() {
		select {
		case end := <-c.ends:
			if end != nil {
				c.end = end
			}
		case <-ctx.Done():
		}
	}
	if c.end != nil {
		otherwise = c.end
	}
	return fmt.Errorf("rabbitpub: %w", otherwise)
}

func table(headers []outbox.Header) amqp.Table {
	t := make(amqp.Table, len(headers))
	for _, h := range headers {
		switch before := t[h.Key].(type) {
		case nil:
			t[h.Key] = string(h.Value)
		case []any:
			t[h.Key] = append(before, string(h.Value))
		default:
			t[h.Key] = []any{before, string(h.Value)}
		}
	}
	return t
}
