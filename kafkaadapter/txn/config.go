package txn

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

// Config configures a [Processor].
type Config struct {
	// Brokers are the addresses to start from. Required.
	Brokers []string

	// Client is the configuration of the producers' clients: SASL, TLS, timeouts, compression,
	// partitioner and so on; you can use that of the consumer group. Its Version must be at least
	// 2.5. In a copy of it, these are set: Producer.Idempotent, Producer.RequiredAcks (WaitForAll),
	// Producer.Return, Producer.Transaction.ID and .Timeout, and Net.MaxOpenRequests (1). A broker
	// that is still ending one transaction refuses the next for a moment. sarama then waits
	// Producer.Transaction.Retry.Backoff. If transactions follow each other closely, set it to a
	// few milliseconds instead of sarama's 100, with a larger Retry.Max: that is up to twice as
	// fast. Required.
	Client *sarama.Config

	// Group is the id of the consumer group. Required.
	Group string

	// InstanceID is the group's Consumer.Group.InstanceId, for static membership. Default:
	// that of Client.
	InstanceID string

	// Handler turns messages into messages. Required.
	Handler Handler

	// DeadLetter returns the message to produce instead of the outputs of a message that cannot be
	// processed, usually to a dead-letter topic; it is committed with the message's offset. If it
	// returns nil, Run stops. It may be called more than once for a message, and concurrently.
	// Default nil: Run returns an *UnprocessableError.
	DeadLetter func(m *sarama.ConsumerMessage, reason error) *sarama.ProducerMessage

	// Attempts is how many times in a row a batch, and then the message alone, may fail before its
	// error counts as permanent. Each claim counts the runs in memory. Default 0: no limit.
	Attempts int

	// IDPrefix begins the transactional ids: prefix/group/topic/partition. A broker with
	// ACLs must allow the client to write ids of this prefix. All members of a group must
	// have the same one, without a slash. Default "onceward".
	IDPrefix string

	// BatchMax is the most messages in one transaction. Default 500.
	BatchMax int

	// BatchBytes is the most bytes of keys and values in one transaction; a larger message
	// comes alone. Default 1 MiB.
	BatchBytes int

	// BatchWait is how long an incomplete batch waits for more. Default 10 ms.
	BatchWait time.Duration

	// TransactionTimeout is how long a producer may leave a transaction open before a broker aborts
	// it, give or take the broker's own interval (10 s by default). It must not exceed the group's
	// session timeout: the transaction of a crashed member should be over when its partitions are
	// given away, because no member can start on a partition whose offset is part of an open
	// transaction. It should exceed the time in which a broker restarts. Default 30 s.
	TransactionTimeout time.Duration

	// Timeout bounds one run of Handler; sarama has no limit of its own. A run that exceeds it
	// fails; a run that ignores its context keeps its partition. Default 0: no limit.
	Timeout time.Duration

	// Drain is the longest time that giving up a partition takes. A running handler has four fifths
	// of it to return, and its output is committed in the rest. It must be at least a second
	// shorter than the group's rebalance timeout. Default 10 s.
	Drain time.Duration

	// RetryBase and RetryMax bound the backoff after an error, with full jitter. Defaults: 100 ms
	// and 10 s; if one is set beyond the default of the other, the other gets the same value.
	RetryBase, RetryMax time.Duration

	// AllowSkip lets CheckConfig accept Consumer.Offsets.Initial = OffsetNewest, which skips
	// messages that arrived before the group's first commit. Default false.
	AllowSkip bool

	// Observer has hooks for what happens. Default: no hooks.
	Observer Observer

	// Logger gets warnings. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) complete() (Config, error) {
	c.setDefaults()
	for _, f := range []struct {
		name string
		n    int
	}{{"Attempts", c.Attempts}, {"BatchMax", c.BatchMax}, {"BatchBytes", c.BatchBytes}} {
		if f.n < 0 {
			return c, bad(f.name, "is %d; it must not be negative", f.n)
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"BatchWait", c.BatchWait}, {"TransactionTimeout", c.TransactionTimeout},
		{"Timeout", c.Timeout}, {"Drain", c.Drain}, {"RetryMax", c.RetryMax},
		{"RetryBase", c.RetryBase}} {
		if f.d < 0 {
			return c, bad(f.name, "is %v; it must not be negative", f.d)
		}
	}
	switch {
	case len(c.Brokers) == 0:
		return c, bad("Brokers", "is empty")
	case slices.Contains(c.Brokers, ""):
		return c, bad("Brokers", "has an empty address")
	case c.Group == "":
		return c, bad("Group", "is empty")
	case c.Handler == nil:
		return c, bad("Handler", "is nil")
	case strings.Contains(c.IDPrefix, "/"):
		return c, bad("IDPrefix", "is %q; it must not contain a slash", c.IDPrefix)
	case c.TransactionTimeout < time.Millisecond:
		return c, bad("TransactionTimeout", "is %v, below Kafka's millisecond",
			c.TransactionTimeout)
	case c.RetryBase > c.RetryMax:
		return c, bad("RetryBase", "is %v, above RetryMax (%v)", c.RetryBase, c.RetryMax)
	}
	return c, c.checkClient()
}

// bad returns the error about a field of Config.
func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: "txn.Config." + field, Reason: fmt.Sprintf(format, args...)}
}

func (c *Config) setDefaults() {
	if c.IDPrefix == "" {
		c.IDPrefix = "onceward"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.InstanceID == "" && c.Client != nil {
		c.InstanceID = c.Client.Consumer.Group.InstanceId
	}
	setDefault(&c.BatchMax, 500)
	setDefault(&c.BatchBytes, 1<<20)
	setDefault(&c.BatchWait, 10*time.Millisecond)
	setDefault(&c.TransactionTimeout, 30*time.Second)
	setDefault(&c.Drain, 10*time.Second)
	setDefault(&c.RetryMax, max(10*time.Second, c.RetryBase))
	setDefault(&c.RetryBase, min(100*time.Millisecond, c.RetryMax))
}

func setDefault[T int | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// transactionalID is the same for every owner of a partition, so that each owner fences the one
// before. A topic's name has no slash, so different partitions have different ids.
func (c *Config) transactionalID(topic string, partition int32) string {
	return fmt.Sprintf("%s/%s/%s/%d", c.IDPrefix, c.Group, topic, partition)
}
