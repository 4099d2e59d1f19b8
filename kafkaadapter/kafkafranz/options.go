package kafkafranz

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
)

// options puts the caller's options between the defaults, which they may replace, and the options
// that they may not.
func (s *session) options(opts []kgo.Opt) []kgo.Opt {
	all := []kgo.Opt{
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// After a pause at its high mark, a partition is fetched only once the fetch that is under
		// way has ended. That fetch takes this long if the broker's other partitions have no
		// messages.
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	all = append(all, opts...)
	begins := &begins{report: s.engine.GroupError, uuidsOf: uuidsOf}
	return append(all,
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
		kgo.OnOffsetsFetched(begins.fetched),
		kgo.AdjustFetchOffsetsFn(begins.adjust),
	)
}

// validate has kgo check the caller's options twice: alone, and with those that Run adds. Otherwise
// kgo could complain about options that the caller has never heard of.
func validate(own, all []kgo.Opt) error {
	if err := kgo.ValidateOpts(own...); err != nil {
		return fmt.Errorf("kafkafranz: %w", err)
	}
	if err := kgo.ValidateOpts(all...); err != nil {
		return &dedup.InputError{Field: "Options",
			Reason: fmt.Sprintf("do not go with those that Run adds (%v)", err)}
	}
	return nil
}

// check returns an [*dedup.InputError] that names the first option under which messages
// would be lost, or the consumer could not do what it promises.
func (c *Consumer) check(client *kgo.Client) error {
	bad := func(option, format string, args ...any) error {
		return &dedup.InputError{Field: "kgo." + option, Reason: fmt.Sprintf(format, args...)}
	}
	start, reset := client.OptValue(kgo.ConsumeStartOffset), client.OptValue(kgo.ConsumeResetOffset)
	rebalance, _ := client.OptValue(kgo.RebalanceTimeout).(time.Duration)
	switch {
	case client.OptValue(kgo.ConsumeRegex) != true && len(client.GetConsumeTopics()) == 0:
		return bad("ConsumeTopics", "is missing")
	case client.OptValue(kgo.BlockRebalanceOnPoll) == true:
		return bad("BlockRebalanceOnPoll",
			"is set: a partition that is being drained would hold up all others")
	case client.OptValue(kgo.TransactionalID) != "":
		return bad("TransactionalID", "is set: offsets are not committed in a transaction")
	case !c.engine.Allow.Skip && start != kgo.NewOffset().AtStart() &&
		start != kgo.NewOffset().AtCommitted():
		return bad("ConsumeStartOffset",
			"is neither AtStart nor AtCommitted: messages from before the first commit would be skipped; set kafkaadapter.Allow.Skip if that is meant")
	case !c.engine.Allow.Skip && reset != kgo.NoResetOffset() && reset != kgo.NewOffset().AtStart():
		return bad("ConsumeResetOffset",
			"is neither NoResetOffset nor AtStart: an invalid offset could silently skip messages; set kafkaadapter.Allow.Skip if that is meant")
	case c.engine.Tuning.Drain > rebalance-c.engine.Handover():
		return bad("RebalanceTimeout",
			"is %v, less than kafkaadapter.Tuning.Drain (%v) and %v: the partition would be given away while handlers run", rebalance, c.engine.Tuning.Drain, c.engine.Handover())
	}
	return nil
}
