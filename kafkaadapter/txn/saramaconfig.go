package txn

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/groupmember"
)

// handover is the time that must be left of the group's rebalance timeout after a partition was
// given up, for the join that follows.
const handover = time.Second

// producerConfig is the configuration of one transactional producer.
func (c *Config) producerConfig(transactionalID string) *sarama.Config {
	cfg := *c.Client
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	cfg.Producer.Transaction.ID = transactionalID
	cfg.Producer.Transaction.Timeout = c.TransactionTimeout
	cfg.Net.MaxOpenRequests = 1
	return &cfg
}

// checkClient refuses settings that producerConfig does not set.
func (c *Config) checkClient() error {
	switch {
	case c.Client == nil:
		return bad("Client", "is nil")
	case !c.Client.Version.IsAtLeast(sarama.V2_5_0_0):
		return bad("Client.Version", "is %v: fencing by member and generation needs 2.5",
			c.Client.Version)
	case c.Client.Producer.Transaction.Retry.Max < 1:
		return bad("Client.Producer.Transaction.Retry.Max",
			"is below 1: a transaction could not wait for the one before")
	}
	if err := c.producerConfig(c.transactionalID("topic", 0)).Validate(); err != nil {
		return bad("Client", "is refused by sarama: %v", err)
	}
	return nil
}

// CheckConfig returns an [*dedup.InputError] that names the first setting of the consumer group's c
// with which messages would be lost or processed twice. sarama does not pass its configuration to a
// handler, so call CheckConfig before making the consumer group. New has checked the producers'
// configuration.
func (p *Processor) CheckConfig(c *sarama.Config) error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "sarama.Config." + field,
			Reason: fmt.Sprintf(format, args...)}
	}
	if c == nil {
		return &dedup.InputError{Field: "sarama.Config", Reason: "is nil"}
	}
	group := c.Consumer.Group
	poll := groupmember.PollFault(c.Consumer.MaxWaitTime, group.Heartbeat.Interval,
		group.Session.Timeout)
	switch {
	case c.Consumer.Offsets.AutoCommit.Enable:
		return bad("Consumer.Offsets.AutoCommit.Enable",
			"is on: offsets are committed in transactions alone")
	case !c.Consumer.Return.Errors:
		return bad("Consumer.Return.Errors", "is off: errors of the group would go unseen")
	case c.Consumer.IsolationLevel != sarama.ReadCommitted:
		return bad("Consumer.IsolationLevel",
			"is not ReadCommitted: a partition could start below an offset that is being committed, and messages of aborted transactions would be processed")
	case c.Consumer.Offsets.Initial != sarama.OffsetOldest && !p.cfg.AllowSkip:
		return bad("Consumer.Offsets.Initial",
			"is not OffsetOldest: messages from before the first commit would be skipped; set txn.Config.AllowSkip if that is meant")
	case group.ResetInvalidOffsets:
		return bad("Consumer.Group.ResetInvalidOffsets",
			"is on: a partition would start elsewhere than at its committed offset, which says what is processed")
	case poll != "":
		return bad("Consumer.MaxWaitTime", "%s", poll)
	case c.Consumer.Fetch.Max != 0:
		return bad("Consumer.Fetch.Max", "is %d: a larger message would be skipped; it must be 0",
			c.Consumer.Fetch.Max)
	case group.InstanceId != p.cfg.InstanceID:
		return bad("Consumer.Group.InstanceId",
			"is %q, but txn.Config.InstanceID is %q: no offset could be committed",
			group.InstanceId, p.cfg.InstanceID)
	case p.cfg.Drain > group.Rebalance.Timeout-handover:
		return bad("Consumer.Group.Rebalance.Timeout",
			"is %v, less than txn.Config.Drain (%v) and %v: the partition would be given away meanwhile", group.Rebalance.Timeout, p.cfg.Drain, handover)
	case p.cfg.TransactionTimeout > group.Session.Timeout:
		return bad("Consumer.Group.Session.Timeout",
			"is %v, less than txn.Config.TransactionTimeout (%v): the partitions of a crashed member would be given away while its transactions are open", group.Session.Timeout, p.cfg.TransactionTimeout)
	case !c.Version.IsAtLeast(sarama.V2_5_0_0):
		return bad("Version", "is %v: stable offsets need 2.5", c.Version)
	}
	return nil
}
