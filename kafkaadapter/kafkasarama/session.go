package kafkasarama

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// session has what a Consumer keeps for a session, from Setup to Cleanup.
type session struct {
	committer *kafkadriver.Committer
	commits   *commits
	topics    *kafkadriver.SessionTopics

	// fenced has the session's values. It ends when the group has fenced this member off, with an
	// ErrFenced as its cause: earlier than the session, or later, while its partitions are being
	// drained.
	fenced context.Context
	fence  context.CancelCauseFunc
	// assigned ends with the session, or when fenced does.
	assigned context.Context
	end      context.CancelCauseFunc // ends assigned
}

// begin starts a session's committer.
func (c *Consumer) begin(member sarama.ConsumerGroupSession) {
	s := c.newSession(member)
	s.topics = c.topics.Begin(s.end)
	s.commits = c.newCommits(member, s)
	s.committer, _ = c.engine.NewCommitter(s.commits.Mark, s.commits.commit,
		s.commits.Confirmed) // its settings have been checked
	c.sessions.Store(member, s)
	s.committer.Start()
	s.topics.Recheck(s.assigned, member.Claims(), s.commits.rewind)
}

// newSession makes the session's contexts. sarama ends its own context with the answer to a
// heartbeat as the cause. The answer may say that the member is fenced.
func (c *Consumer) newSession(member sarama.ConsumerGroupSession) *session {
	s := &session{}
	ctx := member.Context()
	s.fenced, s.fence = context.WithCancelCause(context.WithoutCancel(ctx))
	// fenced must not be a child of ctx, which would end it with sarama's cause.
	assigned, end := context.WithCancelCause(context.WithoutCancel(ctx))
	s.assigned, s.end = assigned, end
	context.AfterFunc(s.fenced, func() { end(context.Cause(s.fenced)) })
	context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if isFencing(cause) {
			cause = c.fenced(s, cause) // at once: the session's Cleanup may be quicker
		}
		end(cause)
	})
	return s
}

// fenced ends everything that depends on this member having its partitions, and returns the cause.
// If another process has taken over the member's instance id, the member stops: otherwise it would
// fence that process in turn.
func (c *Consumer) fenced(s *session, answer error) error {
	cause := fencedBy(answer)
	s.fence(cause)
	c.stopFenced(cause)
	return cause
}

func (c *Consumer) stopFenced(cause error) {
	if errors.Is(cause, sarama.ErrFencedInstancedId) && c.member.Fatal() == nil {
		c.member.Fail(cause)
	}
}

func fencedBy(answer error) error { return fmt.Errorf("%w: %w", kafkaadapter.ErrFenced, answer) }

// session is the state of a session between its Setup and its Cleanup, or nil.
func (c *Consumer) session(member sarama.ConsumerGroupSession) *session {
	found, _ := c.sessions.Load(member)
	s, _ := found.(*session) // nil when there is none
	return s
}

// end commits what is finished and stops the session's committer.
func (c *Consumer) end(member sarama.ConsumerGroupSession) error {
	found, _ := c.sessions.LoadAndDelete(member)
	s, _ := found.(*session)
	if s == nil {
		return nil
	}
	// The session's context has ended by now. The last commit still counts, but must not keep the
	// group from rebalancing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(member.Context()),
		kafkadriver.CommitTimeout)
	defer cancel()
	defer s.topics.Close()
	return s.committer.Stop(ctx)
}
