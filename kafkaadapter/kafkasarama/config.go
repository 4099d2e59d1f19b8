package kafkasarama

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/groupmember"
)

// SafeConfig sets in c what a [Consumer] needs, leaves the rest unchanged, and returns c. A nil c
// starts from sarama.NewConfig. It sets:
//
//   - Consumer.Offsets.AutoCommit.Enable = false: the consumer commits, after the record.
//   - Consumer.Return.Errors = true: commit errors are reported nowhere else.
//   - Consumer.Offsets.Initial = OffsetOldest and Consumer.Group.ResetInvalidOffsets =
//     false: sarama's defaults silently skip messages that arrived before the first join, and
//     all messages up to the end of the log after an invalid offset.
//   - Consumer.IsolationLevel = ReadCommitted: aborted transactions have no effect.
//   - Version = 2.8 where it is lower.
//
// It sets these where they have sarama's default:
//
//   - Consumer.MaxWaitTime = 100 ms: in sarama a Fetch holds its broker's mutex for the whole long
//     poll, and commits and heartbeats to the same broker wait for it. A partition that was paused
//     at its high mark also waits for that poll if the broker's other partitions have no messages.
//   - Consumer.MaxProcessingTime = 1 s: partitions of one broker wait that long for the
//     slowest; the consumer takes messages at once, so that does not happen.
//   - Consumer.Group.Session.Timeout = 45 s, as Kafka's own clients do since KIP-735.
//
// The rebalance strategy stays as it is: moving a running group to
// sarama.NewBalanceStrategyCooperativeSticky takes two rolling restarts.
func SafeConfig(c *sarama.Config) *sarama.Config {
	if c == nil {
		c = sarama.NewConfig()
	}
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.ResetInvalidOffsets = false
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	usual := sarama.NewConfig()
	unless(&c.Consumer.MaxWaitTime, usual.Consumer.MaxWaitTime, 100*time.Millisecond)
	unless(&c.Consumer.MaxProcessingTime, usual.Consumer.MaxProcessingTime, time.Second)
	unless(&c.Consumer.Group.Session.Timeout, usual.Consumer.Group.Session.Timeout, 45*time.Second)
	if !c.Version.IsAtLeast(sarama.V2_8_0_0) {
		c.Version = sarama.V2_8_0_0
	}
	return c
}

// unless replaces a duration by the safe one if it is sarama's usual default.
func unless(have *time.Duration, usual, safe time.Duration) {
	if *have == usual {
		*have = safe
	}
}

// CheckConfig returns an [*dedup.InputError] that names the first setting of c with which messages
// would be lost, or the consumer could not do what it promises. sarama does not pass its
// configuration to a handler, so call CheckConfig before the consumer group is made. [Consume] does
// so.
func (c *Consumer) CheckConfig(sc *sarama.Config) error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "sarama.Config." + field,
			Reason: fmt.Sprintf(format, args...)}
	}
	if sc == nil {
		return &dedup.InputError{Field: "sarama.Config", Reason: "is nil"}
	}
	group := sc.Consumer.Group
	poll := groupmember.PollFault(sc.Consumer.MaxWaitTime, group.Heartbeat.Interval,
		group.Session.Timeout)
	switch {
	case sc.Consumer.Offsets.AutoCommit.Enable:
		return bad("Consumer.Offsets.AutoCommit.Enable",
			"is on: offsets would be committed by the clock, not after the record")
	case !sc.Consumer.Return.Errors:
		return bad("Consumer.Return.Errors", "is off: failed commits would go unseen")
	case sc.Consumer.Offsets.Initial != sarama.OffsetOldest && !c.engine.Allow.Skip:
		return bad("Consumer.Offsets.Initial",
			"is not OffsetOldest: messages from before the first commit would be skipped; set kafkaadapter.Allow.Skip if that is meant")
	case group.ResetInvalidOffsets && !c.engine.Allow.Skip:
		return bad("Consumer.Group.ResetInvalidOffsets",
			"is on: an invalid offset would silently skip messages; set kafkaadapter.Allow.Skip if that is meant")
	case c.engine.Tuning.Drain > group.Rebalance.Timeout-c.engine.Handover():
		return bad("Consumer.Group.Rebalance.Timeout",
			"is %v, less than kafkaadapter.Tuning.Drain (%v) and %v: the partition would be given away while handlers run", group.Rebalance.Timeout, c.engine.Tuning.Drain, c.engine.Handover())
	case c.client.Config().Consumer.Group.InstanceId != group.InstanceId:
		return bad("Consumer.Group.InstanceId",
			"is %q, and %q in the configuration of the client: its commits would be refused",
			group.InstanceId, c.client.Config().Consumer.Group.InstanceId)
	case poll != "":
		return bad("Consumer.MaxWaitTime", "%s", poll)
	case sc.Consumer.Fetch.Max != 0:
		return bad("Consumer.Fetch.Max", "is %d: a larger message would be skipped; it must be 0",
			sc.Consumer.Fetch.Max)
	case !sc.Version.IsAtLeast(sarama.V0_11_0_0):
		return bad("Version", "is %v: headers, and with them message ids, need 0.11", sc.Version)
	}
	return nil
}

// CheckProducer returns an [*dedup.InputError] that names the first setting of c with which a dead
// letter could be lost, or nobody would know that it was sent.
func CheckProducer(c *sarama.Config) error {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "sarama.Config." + field, Reason: reason}
	}
	switch {
	case c == nil:
		return &dedup.InputError{Field: "sarama.Config", Reason: "is nil"}
	case c.Producer.RequiredAcks != sarama.WaitForAll:
		return bad("Producer.RequiredAcks",
			"is not WaitForAll: a letter could be lost with the leader that has it alone")
	case !c.Producer.Return.Successes, !c.Producer.Return.Errors:
		return bad("Producer.Return",
			"must have Successes and Errors on, for a producer that waits")
	case c.Producer.Retry.Max < 1:
		return bad("Producer.Retry.Max", "is below 1: a change of leaders would fail every letter")
	case !c.Version.IsAtLeast(sarama.V0_11_0_0):
		return bad("Version", "is below 0.11: letters need headers")
	case c.Producer.Timeout <= 0 || c.Producer.Timeout > time.Minute:
		return bad("Producer.Timeout",
			"must be positive and at most a minute: a partition that is given up waits for it")
	}
	return nil
}
