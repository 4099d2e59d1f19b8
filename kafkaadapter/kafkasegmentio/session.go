package kafkasegmentio

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// session is this member's part in one generation of the group.
type session struct {
	engine     *kafkadriver.Engine
	opts       *Options
	cluster    *cluster
	generation *kafka.Generation
	watch      *kafkadriver.Topics
	topics     *kafkadriver.SessionTopics
	counts     *kafkadriver.Counts
	offsets    *kafkadriver.Offsets
	committer  *kafkadriver.Committer

	base context.Context // has the values of Run's context, and outlives it
	// ctx ends when the partitions must be given up, fenced when they belong to other members.
	ctx, fenced context.Context
	end, fence  context.CancelCauseFunc

	mu     sync.Mutex
	failed error // why it could not go on
}

// session consumes in one generation until it is over. kafka-go joins the next one after that.
func (c *Consumer) session(ctx context.Context, cl *cluster, topics *kafkadriver.Topics,
	generation *kafka.Generation) error {
	ended := make(chan error, 1)
	generation.Start(func(over context.Context) {
		s := &session{engine: c.engine, opts: &c.opts, cluster: cl, generation: generation,
			watch:  topics,
			counts: kafkadriver.NewCounts(cl.count),
			base:   context.WithoutCancel(ctx)}
		ended <- s.run(ctx, over)
	})
	return <-ended
}

func (s *session) run(ctx, over context.Context) error {
	s.ctx, s.end = context.WithCancelCause(s.base)
	s.fenced, s.fence = context.WithCancelCause(s.base)
	defer s.fence(nil)
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()
	defer context.AfterFunc(over, func() { s.end(kafka.ErrGenerationEnded) })()
	s.cluster.begin(s.end)
	s.topics = s.watch.Begin(s.end)
	defer s.topics.Close()
	s.offsets = s.engine.NewOffsets(s.topics)
	s.committer, _ = s.engine.NewCommitter(s.offsets.Mark, s.commit,
		s.offsets.Confirmed) // its settings have been checked
	s.committer.Start()

	var partitions, beats sync.WaitGroup
	for topic, all := range s.generation.Assignments {
		for _, p := range all {
			partitions.Go(func() { s.consume(topic, int32(p.ID)) })
		}
	}
	beating, rest := context.WithCancel(s.base)
	beats.Go(func() { s.beat(beating) })
	<-s.ctx.Done()
	partitions.Wait()
	rest()
	beats.Wait()
	stopping, cancel := context.WithTimeout(s.base, kafkadriver.CommitTimeout)
	defer cancel()
	if err := s.committer.Stop(stopping); err != nil {
		s.engine.Logger.Warn("kafkasegmentio: last commit", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// beat keeps this member in the group while it drains its partitions, when kafka-go's own heartbeat
// has ended. Its answers also say whether the partitions still belong to this member, which
// kafka-go does not report.
func (s *session) beat(ctx context.Context) {
	select {
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		if err := s.cluster.heartbeat(ctx, s.generation); isFencing(err) {
			s.lose(err)
			return
		}
		_ = kafkadriver.Sleep(ctx, s.opts.HeartbeatInterval)
	}
}

// lose ends everything that depends on this member having its partitions.
func (s *session) lose(answer error) {
	cause := fmt.Errorf("%w: %w", kafkaadapter.ErrFenced, answer)
	s.fence(cause)
	s.offsets.ForgetTopic("")
	s.fail(cause)
}

// fail ends the session with an error that Run reports, or returns.
func (s *session) fail(err error) {
	s.mu.Lock()
	s.failed = errors.Join(s.failed, err)
	s.mu.Unlock()
	s.end(err)
}

// commit makes one attempt. The committer repeats it while anything is not confirmed. So every
// answer except success leads to another attempt, also REQUEST_TIMED_OUT, which may have been
// applied, and REBALANCE_IN_PROGRESS.
func (s *session) commit() {
	all := s.offsets.Due(s.base)
	if len(all) == 0 {
		return
	}
	answers, err := s.cluster.commit(s.base, s.generation, all)
	var fencing error
	for _, answer := range answers {
		if isFencing(answer) {
			fencing = answer
		}
	}
	if fencing != nil { // before anybody hears of it: a log or a hook may take its time
		s.lose(fencing)
	}
	for _, d := range all {
		answer := err
		if err == nil {
			answer = answers[kafkadriver.TopicPartition{Topic: d.Topic, Partition: d.Partition}]
		}
		s.offsets.Ended(d, answer)
	}
}

// rewind is the kafkadriver.Rewind of the session.
func (s *session) rewind(ctx context.Context, topic string, partition int32, next int64,
	metadata string) error {
	answers, err := s.cluster.commit(ctx, s.generation, []kafkadriver.Due{{Topic: topic,
		Partition: partition, Next: next, Metadata: metadata}})
	if err != nil {
		return err
	}
	return answers[kafkadriver.TopicPartition{Topic: topic, Partition: partition}]
}
