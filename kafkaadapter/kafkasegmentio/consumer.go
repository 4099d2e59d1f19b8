package kafkasegmentio

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// dialTimeout bounds making a connection, unless Options.Transport says otherwise.
	dialTimeout = 5 * time.Second
	// joinPause is the time between two attempts to join the group.
	joinPause = time.Second
)

// Consumer is a member of one consumer group. [Consume] makes one and runs it.
type Consumer struct {
	engine  *kafkadriver.Engine
	brokers []string
	topics  []string
	opts    Options
}

// New checks its arguments; an [*dedup.InputError] names the first bad one. It starts nothing and
// contacts nobody.
func New(brokers []string, group string, topics []string, opts Options,
	cfg kafkaadapter.Config) (*Consumer, error) {
	engine, err := kafkadriver.New("kafkasegmentio", group, cfg)
	if err != nil {
		return nil, err
	}
	opts.Balancers = slices.Clone(opts.Balancers)
	c := &Consumer{engine: engine, brokers: slices.Clone(brokers),
		topics: engine.Subscribed(topics), opts: opts}
	c.setDefaults()
	slices.Sort(c.topics)
	c.topics = slices.Compact(c.topics)
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// Consume consumes the topics as a member of the group until ctx ends, and then returns nil. It
// calls [New] and [Consumer.Run], which document its other errors.
func Consume(ctx context.Context, brokers []string, group string, topics []string, opts Options,
	cfg kafkaadapter.Config) error {
	c, err := New(brokers, group, topics, opts, cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run consumes until ctx ends. Then it drains its partitions, which takes up to Tuning.Drain and a
// few seconds, leaves the group, and returns nil. It joins the group again after a rebalance and
// after an error. When ctx ends while the member joins the group, kafka-go first waits for the
// coordinator's answer, up to Options.RebalanceTimeout.
//
// A lasting error, such as a password that is refused, does not end Run. Every try is reported to
// Observer.GroupError and the log. If you do not want that, cancel ctx in the hook.
//
// It returns
//
//   - an [*kafkaadapter.UnprocessableError] when a message can neither be processed nor parked
//   - an error that wraps dedup.ErrClosed when the Deduper has been closed
//   - kafkaadapter.ErrRunning when it runs already
//   - an [*dedup.InputError] for a nil ctx, and an error that wraps one when Owning.Acquire
//     returns it, or the store of an owned partition does
//   - an error for a handler that ends its goroutine
//
// Offsets of unfinished messages stay uncommitted in each case.
func (c *Consumer) Run(ctx context.Context) error {
	if ctx == nil {
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	}
	cl := c.newCluster()
	defer cl.transport.CloseIdleConnections()
	topics := c.engine.NewTopics(cl)
	m := member{c: c}
	defer m.leave()
	return c.engine.Sessions(ctx, func() (last bool, err error) {
		return false, m.consume(ctx, cl, topics)
	})
}

// consume takes part in the group for one generation.
func (m *member) consume(ctx context.Context, cl *cluster, topics *kafkadriver.Topics) error {
	// Without an answer, Present would return all topics.
	if _, err := cl.Topics(ctx, m.c.topics); err != nil {
		return err
	}
	if err := m.join(topics.Present(ctx, m.c.topics)); err != nil {
		return err
	}
	generation, err := m.group.Next(ctx)
	switch {
	case errors.Is(err, kafka.RebalanceInProgress):
		return nil // kafka-go joins again
	case err != nil:
		return err
	}
	return m.c.session(ctx, cl, topics, generation)
}

// Progress returns a reading of every partition that this member has, in order. It costs a few
// locks for each partition, and may be called at any time except inside Observer.Paused.
func (c *Consumer) Progress() []kafkaadapter.Progress { return c.engine.Progress() }

// member is in the group for the topics that exist. A topic that does not exist would be created
// when kafka-go's leader looks for its partitions, or would make that look fail for all topics.
type member struct {
	c      *Consumer
	group  *kafka.ConsumerGroup
	topics []string
}

// join joins the group for these topics, unless the member has done so already.
func (m *member) join(topics []string) (err error) {
	if m.group != nil && slices.Equal(m.topics, topics) {
		return nil
	}
	m.leave()
	o := &m.c.opts
	m.topics = slices.Clone(topics)
	m.group, err = kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: m.c.engine.Group(), Brokers: m.c.brokers, Topics: m.topics,
		Dialer: &kafka.Dialer{ClientID: o.Transport.ClientID, DialFunc: o.Transport.Dial,
			Timeout: cmp.Or(o.Transport.DialTimeout, dialTimeout), TLS: o.Transport.TLS,
			SASLMechanism: o.Transport.SASL},
		GroupBalancers: slices.Clone(o.Balancers), SessionTimeout: o.SessionTimeout,
		HeartbeatInterval: o.HeartbeatInterval, RebalanceTimeout: o.RebalanceTimeout,
		JoinGroupBackoff: joinPause,
	})
	return err
}

// leave leaves the group, after the session has given its partitions up.
func (m *member) leave() {
	if m.group != nil {
		_ = m.group.Close() // always nil
	}
}

// isFencing reports whether this answer says that the member's partitions belong to another member.
func isFencing(err error) bool {
	return errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId) ||
		errors.Is(err, kafka.FencedInstanceID)
}
