// Package groupmember runs a member of a sarama consumer group. It joins again after each session,
// reads the errors that sarama sends only to Errors, and pauses partitions. It ends after a session
// with an error that the next session would meet, too.
package groupmember

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
)

// rejoinMax bounds the wait before the member joins again when no error says to wait longer: the
// rebalance of the other members waits for this one.
const rejoinMax = 2 * time.Second

// Member is what one Run needs. Its fields are set before the first Run and never change.
type Member struct {
	// Retry is the backoff after an error of the group.
	Retry backoff.Policy
	// Busy is the error of a second Run while the first has not returned.
	Busy error
	// Failed is called with every error of the group.
	Failed func(error)
	// Paused is called when a partition is paused (true) or resumed; it may be nil.
	Paused func(topic string, partition int32, paused bool)
	// Topics returns the topics that a session is to consume, a subset of its argument: sarama's
	// Consume fails when one does not exist. It may wait until ctx ends. Nil: all.
	Topics func(ctx context.Context, topics []string) []string

	mu    sync.Mutex
	group sarama.ConsumerGroup // of Run; nil with Consume alone
	halt  context.CancelFunc   // ends Run's consuming
	fatal error
}

// Run consumes the topics until ctx ends, and then returns nil. It returns the error given to
// [Member.Fail], sarama.ErrClosedConsumerGroup, Busy, or an [*dedup.InputError] for a nil argument
// or no topics; any other error of the group goes to Failed.
func (m *Member) Run(ctx context.Context, group sarama.ConsumerGroup, topics []string,
	handler sarama.ConsumerGroupHandler) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case group == nil:
		return &dedup.InputError{Field: "Group", Reason: "is nil"}
	case len(topics) == 0:
		return &dedup.InputError{Field: "Topics", Reason: "is empty"}
	case slices.Contains(topics, ""):
		return &dedup.InputError{Field: "Topics", Reason: "has an empty name"}
	}
	consuming, halt := context.WithCancel(ctx)
	defer halt()
	if err := m.begin(group, halt); err != nil {
		return err
	}
	defer m.end()

	var listening sync.WaitGroup
	stop := make(chan struct{})
	listening.Go(func() { m.listen(group.Errors(), stop) })
	defer listening.Wait()
	defer close(stop)
	return m.consume(consuming, group, topics, handler)
}

func (m *Member) begin(group sarama.ConsumerGroup, halt context.CancelFunc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.group != nil {
		return m.Busy
	}
	m.group, m.halt, m.fatal = group, halt, nil
	return nil
}

func (m *Member) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.group, m.halt = nil, nil
}

// consume joins again after each session.
func (m *Member) consume(ctx context.Context, group sarama.ConsumerGroup, topics []string,
	handler sarama.ConsumerGroupHandler) error {
	rejoin := backoff.Policy{Base: min(m.Retry.Base, rejoinMax), Cap: min(m.Retry.Cap, rejoinMax)}
	for failures := 0; ; failures++ {
		present := topics
		if m.Topics != nil {
			present = m.Topics(ctx, topics)
		}
		began := time.Now()
		err := group.Consume(ctx, present, handler)
		if fatal := m.Fatal(); fatal != nil {
			return fatal
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return err
		}
		policy := rejoin
		if err != nil {
			m.Failed(err)
			if fatal := m.Fatal(); fatal != nil {
				return fatal
			}
			policy = m.Retry
		} else if time.Since(began) > time.Second {
			failures = -1 // a session that lived: this was a rebalance
			continue
		}
		// Sessions that end soon, one after the other, do so because of an error that sarama sends
		// only to Errors, such as an offset out of range.
		if backoff.Sleep(ctx, policy.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

// listen reads the group's errors: sarama drops an error that nobody reads.
func (m *Member) listen(errs <-chan error, stop <-chan struct{}) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			m.Failed(err)
		case <-stop:
			m.listenLast(errs)
			return
		}
	}
}

// listenLast reads the errors that are there already, such as the result of the last commit.
func (m *Member) listenLast(errs <-chan error) {
	for {
		select {
		case err, ok := <-errs:
			if !ok {
				return
			}
			m.Failed(err)
		default:
			return
		}
	}
}

// Fail keeps an error for Run to return. It does not end Run.
func (m *Member) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fatal = errors.Join(m.fatal, err)
}

// Halt ends all partitions of Run.
func (m *Member) Halt() {
	m.mu.Lock()
	halt := m.halt
	m.mu.Unlock()
	if halt != nil {
		halt()
	}
}

// Fatal is the error given to Fail, in this Run or in the last.
func (m *Member) Fatal() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fatal
}

// Pause pauses or resumes a partition, and reports whether there is a Run that can.
func (m *Member) Pause(topic string, partition int32, on bool) bool {
	m.mu.Lock()
	group := m.group
	m.mu.Unlock()
	if group != nil {
		set := map[string][]int32{topic: {partition}}
		if on {
			group.Pause(set)
		} else {
			group.Resume(set)
		}
	}
	if m.Paused != nil {
		m.Paused(topic, partition, on)
	}
	return group != nil
}

// PollFault says why polls of this length would cost the member its place in the group, and is
// empty if they would not. It is for a client whose requests to a broker wait for each other, such
// as sarama: its Broker holds a mutex for a request and its response. So a heartbeat to a
// coordinator that also leads a consumed partition waits for the poll that is under way. The
// heartbeat can lose the mutex to at most one more poll: Go hands a mutex to whoever has waited for
// a millisecond.
func PollFault(poll, heartbeat, session time.Duration) string {
	if 2*poll+heartbeat < session {
		return ""
	}
	return fmt.Sprintf("is %v: a heartbeat may wait for two polls, and with Consumer.Group.Heartbeat.Interval (%v) "+
		"that is not below Consumer.Group.Session.Timeout (%v): the member would be put out of its group while it is alive", poll, heartbeat, session)
}
