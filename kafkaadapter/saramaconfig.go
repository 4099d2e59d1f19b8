package kafkaadapter

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/setting"
)

// SafeConfig sets in c what an adapter needs, leaves the rest alone, and returns c. A
// nil c starts from sarama.NewConfig. It sets:
//
//   - Consumer.Offsets.AutoCommit.Enable = false: the adapter commits, after the record.
//   - Consumer.Return.Errors = true: commit errors are told nowhere else.
//   - Consumer.Offsets.Initial = OffsetOldest and Consumer.Group.ResetInvalidOffsets =
//     false: sarama's defaults silently skip what arrived before the first join, and
//     everything up to the end of the log after an invalid offset.
//   - Consumer.IsolationLevel = ReadCommitted: aborted transactions have no effect.
//   - Consumer.MaxWaitTime = 100 ms: in sarama a Fetch holds its broker's mutex for the
//     whole long poll, and commits and heartbeats to the same broker wait for it. So does
//     a partition that was paused at its high mark while the others have nothing.
//   - Consumer.MaxProcessingTime = 1 s: partitions of one broker wait for the slowest
//     that long; the adapter takes messages at once, so it does not come to that.
//   - Consumer.Group.Session.Timeout = 45 s with a heartbeat every 3 s, as Kafka's own
//     clients do since KIP-735, and Version at least 2.8.
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
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.MaxProcessingTime = time.Second
	c.Consumer.Group.Session.Timeout = 45 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 3 * time.Second
	if !c.Version.IsAtLeast(sarama.V2_8_0_0) {
		c.Version = sarama.V2_8_0_0
	}
	return c
}

// CheckConfig returns an [*dedup.InputError] that names the first setting of c under which messages
// would be lost, or the adapter could not do what it promises. sarama does not hand its
// configuration to a handler, so call it before making the consumer group.
func (a *Adapter) CheckConfig(c *sarama.Config) error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "sarama.Config." + field,
			Reason: fmt.Sprintf(format, args...)}
	}
	if c == nil {
		return &dedup.InputError{Field: "sarama.Config", Reason: "is nil"}
	}
	group := c.Consumer.Group
	poll := setting.PollFault(c.Consumer.MaxWaitTime, group.Heartbeat.Interval,
		group.Session.Timeout)
	switch {
	case c.Consumer.Offsets.AutoCommit.Enable:
		return bad("Consumer.Offsets.AutoCommit.Enable",
			"is on: offsets would be committed by the clock, not after the record")
	case !c.Consumer.Return.Errors:
		return bad("Consumer.Return.Errors", "is off: failed commits would go unseen")
	case c.Consumer.Offsets.Initial != sarama.OffsetOldest && !a.cfg.AllowSkip:
		return bad("Consumer.Offsets.Initial",
			"is not OffsetOldest: messages from before the first commit would be skipped; set kafkaadapter.Config.AllowSkip if that is meant")
	case group.ResetInvalidOffsets && !a.cfg.AllowSkip:
		return bad("Consumer.Group.ResetInvalidOffsets",
			"is on: an invalid offset would silently skip messages; set kafkaadapter.Config.AllowSkip if that is meant")
	case a.cfg.Drain > group.Rebalance.Timeout-a.partitions.Handover():
		return bad("Consumer.Group.Rebalance.Timeout",
			"is %v, less than kafkaadapter.Config.Drain (%v) and %v: the partition would be given away while handlers run", group.Rebalance.Timeout, a.cfg.Drain, a.partitions.Handover())
	case a.cfg.CommitClient != nil &&
		a.cfg.CommitClient.Config().Consumer.Group.InstanceId != group.InstanceId:
		return bad("Consumer.Group.InstanceId",
			"is %q, and %q in the configuration of CommitClient: its commits would be refused",
			group.InstanceId, a.cfg.CommitClient.Config().Consumer.Group.InstanceId)
	case poll != "":
		return bad("Consumer.MaxWaitTime", "%s", poll)
	case c.Consumer.Fetch.Max != 0:
		return bad("Consumer.Fetch.Max", "is %d: a larger message would be skipped; it must be 0",
			c.Consumer.Fetch.Max)
	case !c.Version.IsAtLeast(sarama.V0_11_0_0):
		return bad("Version", "is %v: headers, and with them message ids, need 0.11", c.Version)
	}
	return nil
}
