package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// Defaults of a [RelayConfig].
const (
	DefaultBatchSize      = 1000    // messages
	DefaultBatchBytes     = 4 << 20 // bytes
	DefaultWorkers        = 4       // SQLite: 1
	DefaultPublishTimeout = 10 * time.Second
	DefaultStopTimeout    = 15 * time.Second
	DefaultPollMin        = 10 * time.Millisecond
	DefaultPollMax        = time.Second
	DefaultRetryMin       = 100 * time.Millisecond
	DefaultRetryMax       = 30 * time.Second
	DefaultMaxAttempts    = 10
)

// maxPublishTimeout bounds how long others may wait for a relay that has died. maxPause is longer
// than any sensible pause. Sums of both stay far below what a time.Duration can hold.
const (
	maxPublishTimeout = time.Hour
	maxPause          = 24 * time.Hour
)

// RelayConfig says what a relay does. Outbox, DB, Publisher and OnPark are required.
type RelayConfig struct {
	// Outbox whose messages the relay publishes. No default.
	Outbox *Outbox
	// DB holds the Outbox. The relay uses one connection more than it has Workers, and one more for
	// each shard with a call of a slow or failing topic, 16 at most. With a smaller pool
	// (SetMaxOpenConns) the relay has to wait for such calls, and each may hold up other topics for
	// PublishTimeout. SQLite: set a busy_timeout. No default.
	DB *sql.DB
	// Publisher sends the messages. No default.
	Publisher Publisher
	// OnPark gets each parked message. Nothing publishes such a message until somebody acts. OnPark
	// gets a message again when a COMMIT is lost and the message is parked once more. Several
	// goroutines may call it at once; it must return soon. No default.
	OnPark func(ctx context.Context, parked Parked)

	// OnError gets the errors after which the relay tries again: those of the database, of a topic
	// (a [*TopicError]) and of a message. A [*SnapshotError] says which old transaction makes polls
	// slow. Several goroutines may call it at once; it must return soon. Default: errors are
	// dropped.
	OnError func(err error)
	// BatchSize is how many messages are published at once, 1 to 10,000. Default:
	// [DefaultBatchSize].
	BatchSize int
	// BatchBytes ends a batch when its messages have that many bytes or more, counting bodies, keys
	// and headers; a batch has at least one message. Default: [DefaultBatchBytes]. Unit: bytes.
	BatchBytes int
	// Workers is how many shards the relay works on at once, each with its own connection, 1 to 16;
	// with SQLite 1. Default: [DefaultWorkers], 1 with SQLite.
	Workers int
	// PublishTimeout is how long one call of Publisher may take, a millisecond to an hour. After
	// that its messages count as failed, and its topic is left out until the call has returned and
	// a delay is over. Default: [DefaultPublishTimeout].
	PublishTimeout time.Duration
	// StopTimeout is how long batches that have begun may continue when the context of Run has
	// ended, a millisecond to a day. Default: [DefaultStopTimeout].
	StopTimeout time.Duration
	// PollMin and PollMax bound the pause between polls without a call of Outbox.Notify. Between
	// these bounds the pause is a hundredth of the time since the last message. Each poll is one
	// statement. After a poll that finds nothing the pause is at least ten times as long as the
	// poll took, even if that is more than PollMax. A millisecond to a day. Defaults:
	// [DefaultPollMin], [DefaultPollMax].
	PollMin, PollMax time.Duration
	// RetryMin and RetryMax bound the delay after a failure, which doubles and is spread (full
	// jitter, AWS Architecture Blog 2015). Nothing waits longer than twice RetryMax. A millisecond
	// to a day. Defaults: [DefaultRetryMin], [DefaultRetryMax].
	RetryMin, RetryMax time.Duration
	// MaxAttempts is the number of failures after which an error marked by [Reject] parks the
	// message, at least 1. A message that a [Checker] refuses is parked at once. Default:
	// [DefaultMaxAttempts].
	MaxAttempts int
}

func (c RelayConfig) withDefaults() RelayConfig {
	setDefault(&c.BatchSize, DefaultBatchSize)
	setDefault(&c.BatchBytes, DefaultBatchBytes)
	setDefault(&c.PublishTimeout, DefaultPublishTimeout)
	setDefault(&c.StopTimeout, DefaultStopTimeout)
	setDefault(&c.PollMin, DefaultPollMin)
	setDefault(&c.PollMax, max(DefaultPollMax, c.PollMin))
	setDefault(&c.RetryMin, DefaultRetryMin)
	setDefault(&c.RetryMax, max(DefaultRetryMax, c.RetryMin))
	setDefault(&c.MaxAttempts, DefaultMaxAttempts)
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.Workers == 0 {
		c.Workers = min(DefaultWorkers, c.Outbox.dialect.shards)
	}
	return c
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// required refuses a configuration that lacks a required field.
func (c RelayConfig) required() error {
	switch {
	case c.Outbox.ready() != nil:
		return c.Outbox.ready()
	case c.DB == nil:
		return inputError("DB", "is nil")
	case isNil(c.Publisher):
		return inputError("Publisher", "is nil")
	case c.OnPark == nil:
		return inputError("OnPark",
			"is nil: parked messages are not published, and somebody has to know")
	}
	return nil
}

// check refuses values that NewRelay cannot use; the defaults are already filled in.
func (c RelayConfig) check() error {
	numbers := []struct {
		field         string
		is, low, high int
	}{
		{"BatchSize", c.BatchSize, 1, 10_000},
		{"BatchBytes", c.BatchBytes, 1, 1 << 30},
		{"Workers", c.Workers, 1, c.Outbox.dialect.shards},
		{"MaxAttempts", c.MaxAttempts, 1, 1 << 20},
	}
	for _, n := range numbers {
		if n.is < n.low || n.is > n.high {
			return inputError(n.field, fmt.Sprintf("is %d, must be %d to %d", n.is, n.low, n.high))
		}
	}
	times := []struct {
		field         string
		is, low, high time.Duration
	}{
		{"PublishTimeout", c.PublishTimeout, time.Millisecond, maxPublishTimeout},
		{"StopTimeout", c.StopTimeout, time.Millisecond, maxPause},
		{"PollMin", c.PollMin, time.Millisecond, maxPause},
		{"PollMax", c.PollMax, c.PollMin, maxPause},
		{"RetryMin", c.RetryMin, time.Millisecond, maxPause},
		{"RetryMax", c.RetryMax, c.RetryMin, maxPause},
	}
	for _, t := range times {
		if t.is < t.low || t.is > t.high {
			return inputError(t.field, fmt.Sprintf("is %v, must be %v to %v", t.is, t.low, t.high))
		}
	}
	return nil
}

// least is the shortest wait after a failure, even where polls are rarer.
func (c RelayConfig) least() time.Duration { return min(c.PollMin, c.RetryMin) }

func (c RelayConfig) retry() backoff.Policy {
	return backoff.Policy{Base: c.RetryMin, Cap: c.RetryMax}
}

func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	return !rv.IsValid() || rv.Kind() == reflect.Pointer && rv.IsNil()
}
