package kafkasarama

import (
	"context"
	"sync"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/groupmember"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Consumer is a member of one consumer group. [Consume] makes one and runs it; make one with [New]
// for a sarama.ConsumerGroup or a sarama.Client that exists already.
type Consumer struct {
	engine *kafkadriver.Engine
	client groupClient
	counts *kafkadriver.Counts
	topics *kafkadriver.Topics
	member groupmember.Member

	sessions sync.Map // by sarama's session: the *session
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It starts
// nothing and contacts nobody.
//
// The client commits offsets, asks for the UUIDs of topics and counts their partitions. It must not
// be the client from which the consumer group was made: sarama holds the lock of a connection for a
// whole fetch, and commits would wait for it. Make it with the group's sarama.Config, because a
// static member is known by its InstanceId. The client belongs to the caller, and must live as long
// as the consumer.
func New(client sarama.Client, group string, cfg kafkaadapter.Config) (*Consumer, error) {
	switch {
	case client == nil:
		return nil, &dedup.InputError{Field: "client", Reason: "is nil"}
	case client.Closed():
		return nil, &dedup.InputError{Field: "client", Reason: "is closed"}
	}
	return newConsumer(realClient{client, group}, group, cfg)
}

func newConsumer(client groupClient, group string, cfg kafkaadapter.Config) (*Consumer, error) {
	if !client.Config().Version.IsAtLeast(sarama.V0_11_0_0) {
		return nil, &dedup.InputError{Field: "sarama.Config.Version",
			Reason: "is below 0.11: headers, and with them message ids, need it"}
	}
	engine, err := kafkadriver.New("kafkasarama", group, cfg)
	if err != nil {
		return nil, err
	}
	c := &Consumer{engine: engine, client: client}
	c.counts = kafkadriver.NewCounts(client.Count)
	c.topics = engine.NewTopics(client)
	c.member = groupmember.Member{
		Retry: backoff.Policy{Base: engine.Attempts.RetryBase, Cap: engine.Attempts.RetryMax},
		Busy:  kafkaadapter.ErrRunning, Failed: c.failed, Topics: c.topics.Present,
	}
	return c, nil
}

// Run consumes the topics, and those of Attempts.Delayed, until ctx ends. Then it drains its
// partitions, which takes up to Tuning.Drain and a few seconds, and returns nil. It joins the group
// again after a rebalance and, with a backoff, after an error. It reads the group's Errors channel,
// which nobody else may read meanwhile. It does not close the group. When ctx ends while the member
// joins the group, sarama first waits for the coordinator's answer: up to
// Consumer.Group.Rebalance.Timeout, 60 s by default.
//
// A lasting error, such as a password that is refused now, or a topic that may not be read, does
// not end Run. Every try is reported to Observer.GroupError and the log, and Run continues when the
// error has gone. If you do not want that, cancel ctx in the hook.
//
// It returns
//
//   - an [*kafkaadapter.UnprocessableError] when a message can neither be processed nor parked
//   - an error that wraps dedup.ErrClosed when the Deduper has been closed, and
//     sarama.ErrClosedConsumerGroup when the group has
//   - an error that wraps kafkaadapter.ErrFenced and [sarama.ErrFencedInstancedId] when another
//     process has joined with the same Group.InstanceId
//   - kafkaadapter.ErrRunning when it runs already
//   - an [*dedup.InputError] for a nil argument or no topics, and an error that wraps one when
//     Owning.Acquire returns it, or the store of an owned partition does
//   - an error for a handler that ends its goroutine
//
// Offsets of unfinished messages stay uncommitted in each case.
func (c *Consumer) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	return c.member.Run(ctx, group, c.engine.Subscribed(topics), handler{c})
}

// Progress returns a reading of every partition that this member has, in order. It costs a few
// locks for each partition, and may be called at any time except inside Observer.Paused.
func (c *Consumer) Progress() []kafkaadapter.Progress { return c.engine.Progress() }

// Consume consumes the topics as a member of the group until ctx ends, and then returns nil. It
// makes what a consumer needs, and closes it at the end. It sets sarama's configuration as
// [SafeConfig] says (a nil one starts from sarama.NewConfig) and checks it with
// [Consumer.CheckConfig]. Then it makes a client for commits and the consumer group, and runs. c is
// not changed. Errors are those of [New], [Consumer.CheckConfig], sarama.NewClient,
// sarama.NewConsumerGroup and [Consumer.Run].
func Consume(ctx context.Context, brokers []string, group string, topics []string,
	c *sarama.Config, cfg kafkaadapter.Config) (err error) {
	if c == nil {
		c = sarama.NewConfig()
	}
	own := *c
	safe := SafeConfig(&own)
	client, err := sarama.NewClient(brokers, safe)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	consumer, err := New(client, group, cfg)
	if err != nil {
		return err
	}
	if err := consumer.CheckConfig(safe); err != nil {
		return err
	}
	members, err := sarama.NewConsumerGroup(brokers, group, safe)
	if err != nil {
		return err
	}
	defer func() { _ = members.Close() }()
	return consumer.Run(ctx, members, topics)
}
