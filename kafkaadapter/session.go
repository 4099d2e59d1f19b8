package kafkaadapter

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// sessionState is what the adapter keeps of a session, from Setup to Cleanup.
type sessionState struct {
	committer *flow.Committer
	commits   *commits // nil without Config.CommitClient

	// fenced carries the session's values, and ends when the group has fenced this member
	// off, with an ErrFenced as its cause: earlier than the session does, or later, while
	// its partitions are being drained.
	fenced context.Context
	fence  context.CancelCauseFunc
	// assigned ends with the session, or when fenced does.
	assigned context.Context
	end      context.CancelCauseFunc // ends assigned

	topics *sessionTopics // nil where nobody can be asked
	rewind rewind
}

// Setup implements sarama.ConsumerGroupHandler: it starts the session's committer.
func (a *Adapter) Setup(session sarama.ConsumerGroupSession) error {
	state := a.newState(session)
	state.topics = a.topics.begin(state.end)
	c := &sessionCommits{session: session, topics: state.topics, marked: make(map[string]bool)}
	state.rewind = c.rewind
	cfg := flow.CommitterConfig{Interval: a.cfg.CommitEvery, Count: a.cfg.CommitCount,
		Repeat: commitRepeat, Commit: c.commit}
	mark := c.mark
	if a.client != nil {
		c := a.newCommits(session, state.topics)
		state.commits, mark, cfg.Commit, cfg.Confirmed = c, c.mark, c.commit, c.confirmed
		state.rewind = c.rewind
	}
	cfg.Mark = func(topic string, partition int32, next int64) {
		if state.topics.isStale(topic) {
			return // of a topic that was deleted
		}
		if hook := a.cfg.Observer.Committing; hook != nil {
			hook(topic, partition, next)
		}
		mark(topic, partition, next)
	}
	var err error
	if state.committer, err = flow.NewCommitter(cfg); err != nil {
		state.topics.close()
		return err
	}
	a.mu.Lock()
	a.sessions[session] = state
	a.mu.Unlock()
	state.committer.Start()
	return nil
}

// newState makes the session's contexts. sarama ends its own with the answer to a
// heartbeat as the cause, which may be that the member is fenced.
func (a *Adapter) newState(session sarama.ConsumerGroupSession) *sessionState {
	s := &sessionState{}
	ctx := session.Context()
	s.fenced, s.fence = context.WithCancelCause(context.WithoutCancel(ctx))
	// No child of ctx: it would end with the cause as sarama calls it.
	assigned, end := context.WithCancelCause(context.WithoutCancel(ctx))
	s.assigned, s.end = assigned, end
	context.AfterFunc(s.fenced, func() { end(context.Cause(s.fenced)) })
	context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if isFencing(cause) {
			cause = fencedBy(cause)
			s.fence(cause) // not by way of the session: its Cleanup may be quicker
		}
		end(cause)
	})
	return s
}

func fencedBy(answer error) error { return fmt.Errorf("%w: %w", ErrFenced, answer) }

// fenced ends what depends on the session's partitions being this member's.
func (a *Adapter) fenced(session sarama.ConsumerGroupSession, err error) {
	if state := a.session(session); state != nil {
		state.fence(fencedBy(err))
	}
}

// session is the state of a session between its Setup and its Cleanup, or nil.
func (a *Adapter) session(session sarama.ConsumerGroupSession) *sessionState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[session]
}

// Cleanup implements sarama.ConsumerGroupHandler: it commits what is finished and stops
// the session's committer.
func (a *Adapter) Cleanup(session sarama.ConsumerGroupSession) error {
	a.mu.Lock()
	state := a.sessions[session]
	delete(a.sessions, session)
	a.mu.Unlock()
	if state == nil {
		return nil
	}
	// The session's context has ended by now; its commit still counts, and must not
	// keep the group from rebalancing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(session.Context()),
		partition.CommitTimeout)
	defer cancel()
	defer state.topics.close()
	return state.committer.Stop(ctx)
}
