package kafkaconfluent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// pollWait is how long a poll waits for the first message. The end of a context is noticed only
	// after that.
	pollWait = 100 * time.Millisecond
	// leaveTimeout bounds leaving the group. If a member cannot leave, the group notices after
	// session.timeout.ms.
	leaveTimeout = 5 * time.Second
)

// session is one client, from its making to its closing.
type session struct {
	engine    *kafkadriver.Engine
	client    *kafka.Consumer
	admin     *kafka.AdminClient // over the same connections
	using     sync.RWMutex       // held to close the client; see use
	watch     *kafkadriver.Topics
	topics    *kafkadriver.SessionTopics
	offsets   *kafkadriver.Offsets
	counts    *kafkadriver.Counts
	committer *kafkadriver.Committer
	start     kafka.Offset // of a partition without a commit

	unassigned unassigned

	base context.Context         // has the values of Run's context, and outlives it
	ctx  context.Context         // of the polls
	stop context.CancelCauseFunc // ends them

	mu       sync.Mutex
	over     bool // nothing more is assigned
	assigned map[kafkadriver.TopicPartition]*assigned
	failed   error // of partitions
	fatal    error // of librdkafka
}

// topicsChanged ends a session that must begin again with other topics. It has been reported
// already.
type topicsChanged struct{ error }

func (t *topicsChanged) Unwrap() error { return t.error }

// Reported says so to [kafkadriver.Engine.Sessions].
func (*topicsChanged) Reported() {}

// open makes a client. It joins the group in run.
func (c *Consumer) open(ctx context.Context, config kafka.ConfigMap) (*session, error) {
	s := &session{engine: c.engine, watch: c.topics,
		start: startOf(config), base: context.WithoutCancel(ctx),
		assigned: make(map[kafkadriver.TopicPartition]*assigned)}
	var err error
	if s.client, err = kafka.NewConsumer(&config); err != nil {
		return nil, err
	}
	if s.admin, err = kafka.NewAdminClientFromConsumer(s.client); err != nil {
		_ = s.client.Close()
		return nil, err
	}
	s.counts = kafkadriver.NewCounts(s.count)
	s.ctx, s.stop = context.WithCancelCause(ctx)
	c.current.Store(s)
	return s, nil
}

// run consumes until ctx ends. If it could not go on, it returns the reason, and in last whether
// librdkafka would fail in another session, too.
func (s *session) run(ctx context.Context, topics []string) (last bool, err error) {
	topics = s.watch.Present(s.ctx, topics)
	s.unassigned.topics = topics
	s.topics = s.watch.Begin(func(why error) { s.stop(&topicsChanged{why}) })
	s.offsets = s.engine.NewOffsets(s.topics)
	s.committer, _ = s.engine.NewCommitter(s.offsets.Mark, s.commit,
		s.offsets.Confirmed) // its settings have been checked
	s.committer.Start()
	if s.ctx.Err() == nil {
		if err := s.client.SubscribeTopics(topics, s.rebalance); err != nil {
			s.stop(err)
		}
	}
	for s.ctx.Err() == nil {
		s.poll()
		s.lookForUnassigned()
	}
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(s.fatal, s.failed)
	if err == nil && ctx.Err() == nil {
		err = context.Cause(s.ctx)
	}
	return s.fatal != nil, err
}

// poll waits for a message, and hands on all messages that have arrived, because claims are
// batched.
func (s *session) poll() {
	wait := int(pollWait.Milliseconds())
	var fresh []*assigned
	for range s.engine.Tuning.BatchMax {
		event := s.client.Poll(wait)
		if event == nil {
			break // or a rebalance
		}
		wait = 0
		switch e := event.(type) {
		case *kafka.Message:
			if err := e.TopicPartition.Error; err != nil {
				s.trouble(err)
			} else if a := s.receive(e); a != nil {
				fresh = append(fresh, a)
			}
		case kafka.Error:
			s.trouble(e)
		}
		if s.ctx.Err() != nil {
			break
		}
	}
	for _, a := range fresh {
		if err := a.take(); err != nil {
			s.stop(err)
		}
	}
}

// receive adds a message to the batch of its partition, and returns the partition if the batch was
// empty before.
func (s *session) receive(m *kafka.Message) *assigned {
	at := topicPartitionOf(&m.TopicPartition)
	a := s.find(at)
	offset := int64(m.TopicPartition.Offset)
	if a == nil || offset < a.next {
		return nil // given up, or fetched again after a pause
	}
	a.next = offset + 1
	a.batch = append(a.batch, messageOf(m))
	a.batch[len(a.batch)-1].TopicID = a.uuid
	if len(a.batch) == 1 {
		return a
	}
	return nil
}

// trouble ends the session for errors that librdkafka does not recover from by itself. librdkafka
// does not say which partition an error is of, and after some errors it skips messages that it
// could not read.
func (s *session) trouble(err error) {
	var answer kafka.Error
	errors.As(err, &answer)
	err = fmt.Errorf("kafkaconfluent: %w", err)
	switch {
	case answer.Code() == kafka.ErrFencedInstanceID:
		s.fence(err)
	case answer.IsFatal():
		s.mu.Lock()
		s.fatal = err
		s.mu.Unlock()
		s.stop(err)
	case slices.Contains(passing, answer.Code()):
		s.engine.GroupError(err)
	case answer.Code() == kafka.ErrLogTruncation:
		s.refused()
		s.stop(err)
	default:
		s.stop(err)
	}
}

// refused notes that the log of a partition was cut. librdkafka does not say which partition, so
// refused notes all.
func (s *session) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.assigned {
		s.watch.OutOfRange(at.Topic, at.Partition)
	}
}

// passing are the errors after which the same client continues to read where it was.
var passing = []kafka.ErrorCode{kafka.ErrTransport, kafka.ErrResolve, kafka.ErrAllBrokersDown,
	kafka.ErrTimedOut, kafka.ErrTimedOutQueue, kafka.ErrMaxPollExceeded, kafka.ErrSsl,
	kafka.ErrAuthentication, kafka.ErrWaitCoord, kafka.ErrRetry, kafka.ErrUnknownTopic,
	kafka.ErrUnknownPartition, kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopicID,
	kafka.ErrTopicAuthorizationFailed, kafka.ErrGroupAuthorizationFailed,
	kafka.ErrClusterAuthorizationFailed, kafka.ErrSaslAuthenticationFailed,
	kafka.ErrLeaderNotAvailable, kafka.ErrNotLeaderForPartition, kafka.ErrRequestTimedOut,
	kafka.ErrBrokerNotAvailable, kafka.ErrReplicaNotAvailable, kafka.ErrNetworkException,
	kafka.ErrCoordinatorLoadInProgress, kafka.ErrCoordinatorNotAvailable,
	kafka.ErrNotCoordinator, kafka.ErrRebalanceInProgress, kafka.ErrIllegalGeneration,
	kafka.ErrUnknownMemberID, kafka.ErrFencedMemberEpoch, kafka.ErrStaleMemberEpoch,
	kafka.ErrUnreleasedInstanceID, kafka.ErrGroupMaxSizeReached, kafka.ErrMemberIDRequired,
	kafka.ErrKafkaStorageError, kafka.ErrFencedLeaderEpoch, kafka.ErrUnknownLeaderEpoch,
	kafka.ErrOffsetNotAvailable, kafka.ErrThrottlingQuotaExceeded}

// close gives all partitions up, and leaves the group.
func (s *session) close() {
	s.mu.Lock()
	s.over = true
	all := slices.Collect(maps.Keys(s.assigned))
	s.mu.Unlock()
	s.giveUp(all)
	ctx, cancel := context.WithTimeout(s.base, kafkadriver.CommitTimeout)
	defer cancel()
	if err := s.committer.Stop(ctx); err != nil {
		s.engine.Logger.Warn("kafkaconfluent: last commit", "error", err)
	}
	s.topics.Close()
	s.mu.Lock()
	fatal := s.fatal
	s.mu.Unlock()
	if fatal != nil { // confluent-kafka-go never returns from Close then
		_ = s.client.Unassign()
		return
	}

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.using.Lock() // a commit may wait for its coordinator
		defer s.using.Unlock()
		if err := s.client.Close(); err != nil {
			s.engine.Logger.Warn("kafkaconfluent: the client was not closed", "error", err)
		}
	}()
	select {
	case <-closed:
	case <-time.After(leaveTimeout):
		s.engine.Logger.Warn("kafkaconfluent: the group is not left yet")
	}
}
