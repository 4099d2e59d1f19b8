package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// leaveTimeout bounds leaving the group. If a member cannot leave, the group notices after its
// session timeout.
const leaveTimeout = 5 * time.Second

// session is one client, from its making to its closing.
type session struct {
	engine    *kafkadriver.Engine
	client    *kgo.Client
	ready     chan struct{} // closed when the above is known
	commits   *commits
	counts    *kafkadriver.Counts
	committer *kafkadriver.Committer
	polls     *pollOrder
	fetching  *fetching
	unknown   unknownTopics // of the polls' goroutine

	base context.Context         // has the values of Run's context, and outlives it
	ctx  context.Context         // of the polls
	stop context.CancelCauseFunc // ends them

	mu       sync.Mutex
	over     bool // nothing more is assigned
	assigned map[topicPartition]*assigned
	failed   error // of partitions
}

type topicPartition struct {
	topic     string
	partition int32
}

// open makes a client, and checks it before it can have joined the group.
func (c *Consumer) open(ctx context.Context, opts []kgo.Opt) (*session, error) {
	s := &session{
		engine: c.engine, ready: make(chan struct{}), polls: newPollOrder(),
		fetching: newFetching(),
		base:     context.WithoutCancel(ctx), assigned: make(map[topicPartition]*assigned),
	}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	var err error
	all := s.options(opts)
	if err = validate(opts, all); err == nil {
		s.client, err = kgo.NewClient(all...)
	}
	if err != nil {
		s.stop(err)
		return nil, err
	}
	err = c.check(s.client)
	s.over = err != nil
	s.commits = newCommits(s)
	s.counts = kafkadriver.NewCounts(s.count)
	s.committer, _ = s.engine.NewCommitter(s.commits.Mark, s.commits.commit,
		s.commits.Confirmed) // its settings have been checked
	close(s.ready)
	if err != nil {
		s.stop(err)
		s.client.Close()
	}
	return s, err
}

// run consumes until ctx ends. It returns the reason if it could not go on.
func (s *session) run(ctx context.Context) error {
	s.committer.Start()
	var watching sync.WaitGroup
	defer watching.Wait() // s.ctx has ended by then
	watch := newTopicWatch(s.client, s.topicGone, s.engine.GroupError)
	watching.Go(func() { watch.run(s.ctx) })
	for s.ctx.Err() == nil {
		s.polls.poll(s.ctx, func(ctx context.Context) {
			if err := s.take(s.client.PollRecords(ctx, 0)); err != nil {
				s.stop(err)
			}
		})
	}
	s.close()
	if s.failed != nil {
		return s.failed
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(s.ctx)
}

// close gives all partitions up, and leaves the group.
func (s *session) close() {
	s.mu.Lock()
	s.over = true
	all := make(map[string][]int32)
	for at := range s.assigned {
		all[at.topic] = append(all[at.topic], at.partition)
	}
	s.mu.Unlock()
	s.giveUp(all)

	ctx, cancel := context.WithTimeout(s.base, kafkadriver.CommitTimeout)
	defer cancel()
	if err := s.committer.Stop(ctx); err != nil {
		s.engine.Logger.Warn("kafkafranz: last commit", "error", err)
	}
	ctx, cancel = context.WithTimeout(s.base, leaveTimeout)
	defer cancel()
	if err := s.client.LeaveGroupContext(ctx); err != nil {
		s.engine.Logger.Warn("kafkafranz: the group was not left", "error", err)
	}
	s.client.Close()
}

// take hands the records of a poll to their partitions. It returns an error after which the session
// cannot go on.
func (s *session) take(fetches kgo.Fetches) error {
	for i := range fetches {
		for _, topic := range fetches[i].Topics {
			for _, p := range topic.Partitions {
				if err := s.takeFrom(topic, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *session) takeFrom(topic kgo.FetchTopic, p kgo.FetchPartition) error {
	if len(p.Records) > 0 {
		a := s.find(topicPartition{topic.Topic, p.Partition})
		if a != nil { // it may have been given up since the poll
			if err := a.take(topic.TopicID, p.Records, p.HighWatermark); err != nil {
				return err
			}
		}
	}
	if p.Err == nil || errors.Is(p.Err, context.Canceled) { // of the poll
		return nil
	}
	return s.trouble(topic.Topic, p)
}

// trouble returns the errors from which the client does not recover.
func (s *session) trouble(topic string, p kgo.FetchPartition) error {
	var group *kgo.ErrGroupSession
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(p.Err, kgo.ErrClientClosed):
		return p.Err
	case errors.As(p.Err, &group): // it joins again
		s.engine.GroupError(p.Err)
		return nil
	case errors.Is(p.Err, kerr.UnknownTopicID):
		return s.unknownTopic(topicPartition{topic, p.Partition}, p.Err)
	case errors.As(p.Err, &loss), kerr.IsRetriable(p.Err):
		s.rest(topicPartition{topic, p.Partition})
		s.engine.GroupError(fmt.Errorf("kafkafranz: %s/%d: %w", topic, p.Partition, p.Err))
		return nil
	}
	return fmt.Errorf("kafkafranz: %s/%d: %w", topic, p.Partition, p.Err)
}

// fence ends everything that depends on this member having its partitions.
func (s *session) fence(answer error) {
	cause := fmt.Errorf("%w: %w", kafkaadapter.ErrFenced, answer)
	s.mu.Lock()
	s.over = true
	if errors.Is(answer, kerr.FencedInstanceID) {
		s.failed = errors.Join(s.failed, cause)
	}
	for _, a := range s.assigned {
		a.lose(cause)
	}
	s.mu.Unlock()
	s.commits.ForgetTopic("")
	s.stop(cause)
}
