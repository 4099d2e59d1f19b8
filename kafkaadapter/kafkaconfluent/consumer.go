package kafkaconfluent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Consumer is a member of one consumer group. [Consume] makes one and runs it.
type Consumer struct {
	engine  *kafkadriver.Engine
	topics  *kafkadriver.Topics
	current atomic.Pointer[session] // of Run
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It starts
// nothing and contacts nobody.
func New(group string, cfg kafkaadapter.Config) (*Consumer, error) {
	engine, err := kafkadriver.New("kafkaconfluent", group, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Allow.TakeOver {
		return nil, engine.Bad("Allow.TakeOver",
			"is set: librdkafka does not tell the generation of the group")
	}
	c := &Consumer{engine: engine}
	c.topics = engine.NewTopics(source{c})
	return c, nil
}

// Consume consumes the topics as a member of the group until ctx ends, and then returns nil. It
// calls [New] and [Consumer.Run] with bootstrap.servers; they document its other errors. A nil
// configuration of the client is an empty one.
func Consume(ctx context.Context, brokers []string, group string, topics []string,
	config kafka.ConfigMap, cfg kafkaadapter.Config) error {
	c, err := New(group, cfg)
	if err != nil {
		return err
	}
	config = maps.Clone(config)
	if config == nil {
		config = make(kafka.ConfigMap)
	}
	config["bootstrap.servers"] = strings.Join(brokers, ",")
	return c.Run(ctx, config, topics)
}

// Run makes a client of the configuration and consumes until ctx ends. Then it drains its
// partitions, which takes up to Tuning.Drain and a few seconds, leaves the group, and returns nil.
// It sets group.id, and these properties where the configuration does not have them:
//
//	enable.auto.commit        false
//	enable.auto.offset.store  false
//	isolation.level           read_committed
//	auto.offset.reset         error
//	fetch.wait.max.ms         100
//
// A partition without a commit is read from its start, unless auto.offset.reset is latest. An
// offset that is out of range is an error, unless auto.offset.reset says otherwise. It does not
// change the configuration. Topics are names, not patterns.
//
// When the group has fenced this member off, or a partition cannot be read on, Run closes the
// client, and after a backoff it makes another one with the same configuration. It reports that to
// Observer.GroupError and the log.
//
// It returns:
//
//   - an [*kafkaadapter.UnprocessableError]: a message can neither be processed nor parked
//   - an error that wraps dedup.ErrClosed: the Deduper has been closed
//   - an error that wraps a fatal [kafka.Error] of librdkafka, such as kafka.ErrFencedInstanceID
//     when another process runs under the same group.instance.id
//   - kafkaadapter.ErrRunning: it runs already
//   - an [*dedup.InputError] that names a bad argument or property, or an error of librdkafka about
//     the configuration
//   - an error that wraps an [*dedup.InputError] of Owning.Acquire, or of the store of an owned
//     partition
//   - an error for a handler that ends its goroutine
//
// Offsets of unfinished messages stay uncommitted in each case.
//
// After a fatal error the client cannot be closed, because confluent-kafka-go 2.11 never returns
// from Close then. Its threads stay until the process ends, so end the process.
func (c *Consumer) Run(ctx context.Context, config kafka.ConfigMap, topics []string) error {
	if ctx == nil {
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	}
	if err := checkTopics(topics); err != nil {
		return err
	}
	all, err := c.complete(config)
	if err != nil {
		return err
	}
	return c.engine.Sessions(ctx, func() (last bool, err error) {
		s, err := c.open(ctx, all)
		if err != nil {
			return true, err
		}
		return s.run(ctx, c.engine.Subscribed(topics))
	})
}

// Progress returns a reading of every partition that this member has, in order. It costs a few
// locks for each partition, and may be called at any time except inside Observer.Paused.
func (c *Consumer) Progress() []kafkaadapter.Progress { return c.engine.Progress() }

// codeOf returns librdkafka's code in an error, or kafka.ErrNoError.
func codeOf(err error) kafka.ErrorCode {
	if answer := (kafka.Error{}); errors.As(err, &answer) {
		return answer.Code()
	}
	return kafka.ErrNoError
}
