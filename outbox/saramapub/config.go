package saramapub

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/outbox"
)

// SafeConfig sets what [CheckConfig] requires in c, and returns c. All other settings stay.
func SafeConfig(c *sarama.Config) *sarama.Config {
	if !c.Version.IsAtLeast(sarama.V0_11_0_0) {
		c.Version = sarama.V2_1_0_0
	}
	c.Net.MaxOpenRequests = 1
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Retry.Max = max(c.Producer.Retry.Max, 1)
	if neverFlushes(c) {
		c.Producer.Flush.Frequency = time.Millisecond
	}
	return c
}

// CheckConfig returns an [*outbox.InputError] that names the first setting of c under which a
// message would be lost, not sent, sent twice without a crash, or sent out of order.
func CheckConfig(c *sarama.Config) error {
	bad := func(field, reason string) error {
		return &outbox.InputError{Field: "sarama.Config." + field, Reason: reason}
	}
	switch {
	case c == nil:
		return &outbox.InputError{Field: "sarama.Config", Reason: "is nil"}
	case c.Producer.RequiredAcks != sarama.WaitForAll:
		return bad("Producer.RequiredAcks",
			"is not WaitForAll: a message could be deleted here and lost with the leader that has it alone")
	case !c.Producer.Idempotent:
		return bad("Producer.Idempotent",
			"is off: a repeated request would send messages twice, and out of order")
	case c.Net.MaxOpenRequests != 1:
		return bad("Net.MaxOpenRequests", "is not 1, which sarama's idempotent producer needs")
	case c.Producer.Retry.Max < 1:
		return bad("Producer.Retry.Max", "is below 1: a change of leaders would fail every message")
	case !c.Producer.Return.Successes, !c.Producer.Return.Errors:
		return bad("Producer.Return",
			"must have Successes and Errors on, for a producer that waits")
	case !c.Version.IsAtLeast(sarama.V0_11_0_0):
		return bad("Version", "is below 0.11: the id needs headers")
	case c.Producer.Transaction.ID != "":
		return bad("Producer.Transaction.ID",
			"is set: messages outside of a transaction would fail")
	case neverFlushes(c):
		return bad("Producer.Flush.Frequency",
			"is 0 with Flush.Messages or Flush.Bytes: fewer messages would never be sent")
	case c.Producer.Partitioner == nil || !c.Producer.Partitioner("t").RequiresConsistency():
		return bad("Producer.Partitioner",
			"does not keep a key in one partition: its order would be lost")
	}
	return nil
}

// neverFlushes reports whether sarama keeps messages until there are more of them. A call whose
// messages do not suffice would never return.
func neverFlushes(c *sarama.Config) bool {
	f := c.Producer.Flush
	return f.Frequency == 0 && f.Messages != 1 && (f.Messages > 1 || f.Bytes > 0)
}
