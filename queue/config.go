package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Config configures a [Consumer]. Deduper or Unclaimed, and Handler, are required.
type Config struct {
	// Deduper claims and records the messages: level Claimed.
	Deduper *dedup.Deduper
	// Unclaimed runs every delivery. The handler records the message itself, in the transaction
	// of its effect, with sqladapter's Do: level Atomic. Deduper must be nil then.
	Unclaimed bool
	// Handler performs the effect of one message.
	Handler Handler
	// Scope of all keys, instead of Delivery.Scope. Messages of two queues that have the same id
	// are then one message. Default: Delivery.Scope.
	Scope string
	// Fingerprint binds an id to its payload: a message with the same id and another payload is a
	// mismatch, and is parked. Default false.
	Fingerprint bool
	// AllowNoID parks messages without an id even if no message has had one so far. By default the
	// consumer stops when the first three messages all have no id: the adapter probably looks in
	// the wrong place, and Park would empty the queue. Default false.
	AllowNoID bool
	// Park keeps the messages that cannot be processed, with the reason, instead of
	// Delivery.Park. It is called concurrently. A message whose Park fails or panics is
	// delivered again. Where neither is set, the consumer stops with an *UnprocessableError.
	Park func(ctx context.Context, d *Delivery, reason error) error
	// Attempts bounds the attempts at one message.
	Attempts Attempts
	// Workers bounds the handlers that run at once. Default 32.
	Workers int
	// Buffer bounds the deliveries that Run holds, including those that wait for a worker or for a
	// message of their key. Default: twice Workers.
	Buffer int
	// Drain is how long running handlers may continue when Run ends, before their contexts end.
	// Default 10 s.
	Drain time.Duration
	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Logger gets warnings: parked messages, outages, and calls that failed at the broker. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Attempts bounds the attempts at one message.
type Attempts struct {
	// Max is how often a message is tried before it is parked with an error that wraps ErrAttempts.
	// The store counts an attempt when the message is claimed, so an attempt that killed its
	// process counts, too. It remembers the count for the Deduper's Hold. Attempts that the end of
	// Run cut short do not count. With Unclaimed the broker's deliveries count. A message whose
	// process died in its second or a later attempt runs alone, so that it takes no other message
	// along. Default 0: no limit. 1 is refused.
	Max int
	// Timeout bounds one run of the handler. Default 0: no limit.
	Timeout time.Duration
	// RetryBase and RetryMax bound the backoff after an error, with full jitter. Defaults: 100 ms
	// and 30 s; if one is set beyond the default of the other, the other gets the same value.
	RetryBase, RetryMax time.Duration
}

// Observer is told what a consumer does. Every hook may be nil, is called concurrently, and must
// return quickly.
type Observer struct {
	// Skipped: the message was done before, the time age ago; cause says why it was redelivered.
	Skipped func(d *Delivery, cause driver.Cause, age time.Duration)
	// Handled: the handler ran for the time took and returned err.
	Handled func(d *Delivery, took time.Duration, err error)
	// Waiting: the message is in flight elsewhere, and is delivered again later.
	Waiting func(d *Delivery)
	// Recorded: the effect of the message is on record; took is the time since its handler
	// returned.
	Recorded func(d *Delivery, took time.Duration)
	// Unrecorded: the handler returned nil, but its claim was lost before the record could be
	// confirmed. The effect may happen again.
	Unrecorded func(d *Delivery, err error)
	// Parked: the message was kept by Park, for this reason.
	Parked func(d *Delivery, reason error)
	// AckRefused: the broker did not take, or did not confirm, an Ack or a Nack. The message is
	// redelivered; if it was done, it is skipped then.
	AckRefused func(d *Delivery, err error)
}

const (
	defaultWorkers = 32
	defaultDrain   = 10 * time.Second
)

// complete returns the configuration with its defaults, or names the first bad field.
func (c Config) complete() (Config, error) {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "queue.Config." + field,
			Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Deduper == nil && !c.Unclaimed:
		return c, bad("Deduper", "is nil; set it, or Unclaimed if the handler records messages")
	case c.Deduper != nil && c.Unclaimed:
		return c, bad("Unclaimed", "is set, and so is Deduper")
	case c.Handler == nil:
		return c, bad("Handler", "is nil")
	case c.Attempts.Max < 0:
		return c, bad("Attempts.Max", "is %d; it must not be negative", c.Attempts.Max)
	case c.Attempts.Max == 1:
		return c, bad("Attempts.Max", "is 1: a crash would park the message; 2 is the least")
	case c.Attempts.Timeout < 0:
		return c, bad("Attempts.Timeout", "is %v; it must not be negative", c.Attempts.Timeout)
	case c.Workers < 0:
		return c, bad("Workers", "is %d; it must not be negative", c.Workers)
	case c.Buffer < 0:
		return c, bad("Buffer", "is %d; it must not be negative", c.Buffer)
	case c.Drain < 0:
		return c, bad("Drain", "is %v; it must not be negative", c.Drain)
	}
	c.Workers = cmp.Or(c.Workers, defaultWorkers)
	c.Buffer = cmp.Or(c.Buffer, 2*c.Workers)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
