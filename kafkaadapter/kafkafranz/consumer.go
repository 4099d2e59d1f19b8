package kafkafranz

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Consumer is a member of one consumer group. [Consume] makes one and runs it.
type Consumer struct{ engine *kafkadriver.Engine }

// New checks the configuration; an [*dedup.InputError] names the first bad field. It starts
// nothing and contacts nobody.
func New(group string, cfg kafkaadapter.Config) (*Consumer, error) {
	engine, err := kafkadriver.New("kafkafranz", group, cfg)
	if err != nil {
		return nil, err
	}
	return &Consumer{engine: engine}, nil
}

// Consume consumes the topics as a member of the group until ctx ends, and then returns nil. It
// calls [New] and [Consumer.Run], which document its other errors.
func Consume(ctx context.Context, brokers []string, group string, topics []string, opts []kgo.Opt,
	cfg kafkaadapter.Config) error {
	c, err := New(group, cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx, append([]kgo.Opt{kgo.SeedBrokers(brokers...),
		kgo.ConsumeTopics(c.engine.Subscribed(topics)...)}, opts...)...)
}

// Run makes a client of the options and consumes until ctx ends. Then it drains its partitions,
// which takes up to Tuning.Drain and a few seconds, leaves the group, and returns nil. It needs
// kgo.ConsumeTopics, which must include the topics of Attempts.Delayed. It sets kgo.ConsumerGroup,
// and takes every other option: seeds, SASL, TLS, dialer, balancers, kgo.InstanceID,
// kgo.ServerSideBalancer, hooks. Without options of your own it reads committed messages from the
// start of each partition, and treats an offset that is out of range as an error:
//
//	kgo.FetchIsolationLevel(kgo.ReadCommitted())
//	kgo.ConsumeStartOffset(kgo.NewOffset().AtStart())
//	kgo.ConsumeResetOffset(kgo.NoResetOffset())
//	kgo.FetchMaxWait(100 * time.Millisecond)
//
// It replaces the callbacks for assigned, revoked and lost partitions and for fetched offsets, and
// turns automatic commits off. The client belongs to Run: nobody else may poll it, commit with it,
// or close it. When the group has fenced this member off, or a partition cannot be read on, Run
// closes the client, and after a backoff it makes another one with the same options.
//
// It returns:
//
//   - an [*kafkaadapter.UnprocessableError] when a message can neither be processed nor parked
//   - an error that wraps dedup.ErrClosed when the Deduper has been closed
//   - an error that wraps kerr.FencedInstanceID when another process runs under the same
//     kgo.InstanceID
//   - kgo.ErrClientClosed when somebody has closed the client
//   - kafkaadapter.ErrRunning when it runs already
//   - an [*dedup.InputError] that names a bad option, or kgo's error about the options
//   - an error that wraps an [*dedup.InputError] of Owning.Acquire, or of the store of an owned
//     partition
//   - an error for a handler that ends its goroutine
//
// Offsets of unfinished messages stay uncommitted in each case.
func (c *Consumer) Run(ctx context.Context, opts ...kgo.Opt) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case slices.Contains(opts, nil):
		return &dedup.InputError{Field: "Options", Reason: "has one that is nil"}
	}
	opts = append(slices.Clone(opts), kgo.ConsumerGroup(c.engine.Group()))
	return c.engine.Sessions(ctx, func() (last bool, err error) {
		s, err := c.open(ctx, opts)
		if err != nil {
			return true, err
		}
		err = s.run(ctx)
		// After FencedInstanceID a new session would fence the process that has the id now, which
		// would fence this one, and so on.
		return errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kerr.FencedInstanceID), err
	})
}

// Progress returns a reading of every partition that this member has, in order. It costs a few
// locks for each partition, and may be called at any time except inside Observer.Paused.
func (c *Consumer) Progress() []kafkaadapter.Progress { return c.engine.Progress() }

// isFencing reports whether this answer to a commit says that the member's partitions belong to
// another member. STALE_MEMBER_EPOCH does not: a KIP-848 coordinator counts the epoch up before the
// member hears of it, and it does not know a member that it has given up.
func isFencing(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.FencedMemberEpoch)
}
