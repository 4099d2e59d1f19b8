package drivertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// groupLog is a slog.Handler that counts how often a topic is reported as recreated. Brokers that
// have just replaced a topic also refuse the client for other reasons, as often as it comes too
// early.
type groupLog struct {
	slog.Handler
	lines atomic.Int64
}

// Enabled implements slog.Handler.
func (*groupLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *groupLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if ok && errors.Is(err, kafkaadapter.ErrTopicRecreated) {
			l.lines.Add(1)
		}
		return true
	})
	return nil
}

// The topic is deleted and created again while a handler is at work, and has fewer messages than
// before. That is reported, and the new topic is read from its start. Offsets of the old topic are
// not committed into the new one.
func recreated(s *scene) {
	s.topic(orders, 1)
	s.free() // the oracle cannot tell commits of the deleted topic apart
	g, log := newGateway(), &groupLog{}
	g.deaf = true
	m := s.join(g.only(func(m *kafkaadapter.Message) bool { return m.ID == number(5) }),
		configured(func(c *kafkaadapter.Config) { c.Logger = slog.New(log) }))
	s.produce(0, 0, 6)
	<-g.inside
	s.replace(orders)
	close(g.open)
	s.produce(0, 100, 3)
	s.affected(9)
	s.committed()
	m.leave()
	s.once(9)
	gone := 0
	for _, err := range s.groupErrors() {
		if errors.Is(err, kafkaadapter.ErrTopicRecreated) {
			gone++
		}
	}
	most := 3 // a commit by name comes into the new topic; each fetch of it reports that
	s.mu.Lock()
	if s.byID {
		most = 1
	}
	s.mu.Unlock()
	assert.True(s, gone > 0 && gone <= most, "told %d times", gone)
	lines := log.lines.Load() // fewer lines than reports: the log drops those that come too soon
	assert.True(s, lines > 0 && lines <= int64(gone), "%d lines in the log", lines)
}

// origin is the metadata with which four of six messages were committed before a member joined, and
// how many effects the member then has.
type origin struct {
	metadata func(s *scene) string
	effects  int
}

var (
	thisTopic = origin{func(s *scene) string {
		return kafkadriver.Stamp(s.cluster.TopicID(orders))
	}, 2}
	deletedTopic = origin{func(*scene) string {
		return kafkadriver.Stamp(kafkadriver.TopicID([16]byte{1}))
	}, 6}
	foreignMember = origin{func(*scene) string { return "consumer-1" }, 2}
)

// A committed offset counts only for the topic for which it was committed, and not for another one
// of its name. Commits say which topic they are for.
func committedFor(by origin) func(*scene) {
	return func(s *scene) {
		s.topic(orders, 1)
		s.free() // the first commit is not of a member
		s.produce(0, 0, 6)
		require.NoError(s, s.cluster.Commit(s.Context(), group, orders, 4, by.metadata(s)))
		m := s.join(nil)
		s.eventually(func() (bool, string) {
			to, metadata := s.cluster.Committed(group, orders, 0)
			return to == 6 && s.totalEffects() == by.effects && metadata == thisTopic.metadata(s),
				fmt.Sprintf("%d effects, committed to %d of %q", s.totalEffects(), to, metadata)
		})
		m.leave()
		s.once(by.effects)
	}
}

// The group's offset is beyond the end of the log, as after an unclean election. The messages below
// it are handled once, and the group continues after them.
func cutLog(s *scene) {
	s.topic(orders, 1)
	s.free() // the first commit is not of a member
	s.produce(0, 0, 6)
	require.NoError(s, s.cluster.Commit(s.Context(), group, orders, 9, ""))
	m := s.join(nil)
	s.affected(6)
	s.produce(0, 6, 6)
	s.committed()
	m.leave()
	s.once(12)
	require.ErrorIs(s, errors.Join(s.groupErrors()...), kafkaadapter.ErrLogCut)
}

// A topic that is missing is left out and not created, and is read once it exists.
func missingTopic(s *scene) {
	const later = "later"
	s.topic(orders, 1)
	s.produce(0, 0, 3)
	m := s.join(nil, func(m *Member) { m.Topics = []string{orders, later} })
	s.committed()
	require.Empty(s, s.cluster.TopicID(later), "it was created")
	s.topic(later, 1)
	s.send(message(later, 0, "evt_later"))
	s.affected(4)
	s.committed()
	m.leave()
	s.once(4)
}

// A missing topic is reported.
func missingIsTold(s *scene) {
	s.topic(orders, 1)
	m := s.join(nil, func(m *Member) { m.Topics = []string{orders, "later"} })
	s.eventually(func() (bool, string) { return len(s.groupErrors()) > 0, "nobody is told" })
	assert.ErrorContains(s, s.groupErrors()[0], "later")
	m.leave()
}
