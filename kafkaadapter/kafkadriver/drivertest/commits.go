package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Keys of requests and codes of errors in Kafka's protocol.
const (
	commitAPI    = 8
	heartbeatAPI = 12
	epochAPI     = 68 // ConsumerGroupHeartbeat

	unknownServer     = -1
	illegalGeneration = 22
	unknownMember     = 25
	fencedInstance    = 82
	fencedEpoch       = 110
)

// refusal is an answer to a commit.
type refusal struct {
	name string
	code int16
	// retried says that after this answer the client itself may repeat the commit, within an
	// attempt.
	retried bool
}

var refusals = []refusal{
	{"COORDINATOR_NOT_AVAILABLE", 15, true}, {"NOT_COORDINATOR", 16, true},
	{"COORDINATOR_LOAD_IN_PROGRESS", 14, true}, {"REBALANCE_IN_PROGRESS", 27, false},
	{"REQUEST_TIMED_OUT", 7, true}, {"OFFSET_METADATA_TOO_LARGE", 12, false},
	{"GROUP_AUTHORIZATION_FAILED", 30, false}, {"UNKNOWN_SERVER_ERROR", unknownServer, false},
	{"UNSTABLE_OFFSET_COMMIT", 88, true}, {"STALE_MEMBER_EPOCH", 113, false},
}

var fencings = []refusal{
	{"UNKNOWN_MEMBER_ID", unknownMember, false}, {"ILLEGAL_GENERATION", illegalGeneration, false},
	{"FENCED_MEMBER_EPOCH", fencedEpoch, false},
}

func commitRows() []row {
	all := []row{
		{"commits/never", "an effect that happens again because its commit was lost", true,
			neverCommitted},
		{"commits/fenced_cause", "a handler that cannot tell why it ends", false, fencedCause},
		{"commits/fenced_before_hooks", "handlers that run on while a log or a hook takes its time",
			true, fencedBeforeHooks},
	}
	for _, r := range refusals {
		all = append(all, row{"commits/refused/" + r.name, "a commit that is lost without a word",
			false, func(s *scene) { refused(s, r) }})
	}
	for _, r := range fencings {
		all = append(all, row{"commits/fenced/" + r.name,
			"handlers that run on in a partition that somebody else has", true,
			func(s *scene) { fenced(s, r.code, nil) }})
	}
	return all
}

// The effects and their records have landed, but no commit has, as after a crash. The next member
// skips the messages, in whatever generation.
func neverCommitted(s *scene) {
	s.topic(orders, 2)
	refused := s.cluster.Fail(Failure{API: commitAPI, Code: unknownServer, Count: 1 << 20})
	s.produce(0, 0, 20)
	s.produce(1, 20, 20)
	m := s.join(nil)
	s.affected(40)
	m.leave()
	assert.Zero(s, s.noted("skipped"))
	refused.Remove()
	m = s.join(nil)
	s.committed()
	m.leave()
	s.once(40)
	assert.Equal(s, 40, s.noted("skipped"))
}

// A refusal of a commit is reported, and the commit is repeated until the offset is there, without
// another message. Handlers do not notice.
func refused(s *scene, r refusal) {
	s.topic(orders, 1)
	fault := s.cluster.Fail(Failure{API: commitAPI, Code: r.code, Count: 3})
	committed, failed := 0, []error(nil)
	var mu sync.Mutex
	g := newGateway()
	m := s.join(g.only(func(m *kafkaadapter.Message) bool { return m.Offset == 4 }),
		configured(func(c *kafkaadapter.Config) {
			c.Observer.Committed = func(string, int32, int64) {
				mu.Lock()
				committed++
				mu.Unlock()
			}
			c.Observer.CommitFailed = func(_ string, _ int32, err error) {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		}))
	s.produce(0, 0, 5)
	<-g.inside
	s.eventually(func() (bool, string) {
		return fault.Hits() == 3, fmt.Sprint("refused: ", fault.Hits())
	})
	s.committedTo(4)
	assert.Empty(s, g.ended(), "a handler was canceled")
	close(g.open)
	s.committed()
	m.leave()
	s.once(5)
	mu.Lock()
	defer mu.Unlock()
	assert.NotZero(s, committed, "no commit was told")
	assert.True(s, r.retried || slices.ContainsFunc(failed, func(err error) bool {
		return s.d.Code(err) == r.code
	}), "told: %v", failed)
}

// An answer that fences this member off cancels its handlers at once, and the member joins again.
func fenced(s *scene, code int16, failed func(*gateway)) (causes []error) {
	s.topic(orders, 1)
	g := newGateway()
	m := s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		switch m.Offset {
		case 4:
			<-g.inside // or it could be committed before the next one has come
		case 5:
			return g.handle(ctx, m)
		}
		return nil
	}, configured(func(c *kafkaadapter.Config) {
		c.Tuning.Drain = 2 * time.Second
		if failed != nil {
			c.Observer.CommitFailed = func(string, int32, error) { failed(g) }
		}
	}))
	s.produce(0, 0, 4)
	s.committed()
	s.cluster.Fail(Failure{API: commitAPI, Code: code, Count: 1})
	s.produce(0, 4, 2) // the first one is committed, the second one runs
	<-g.inside
	s.canceled(g)
	for _, cause := range g.ended() {
		assert.ErrorIs(s, cause, kafkaadapter.ErrFenced)
	}
	close(g.open)
	s.forgotten()
	s.committed()
	m.leave()
	s.once(6)
	return g.ended()
}

// The cause of a handler's context contains the coordinator's answer.
func fencedCause(s *scene) {
	for _, cause := range fenced(s, illegalGeneration, nil) {
		assert.Equal(s, int16(illegalGeneration), s.d.Code(cause), "%v", cause)
	}
}

// Handlers are canceled before a hook is called. The hook takes as long as the client needs to join
// again: even if the client has joined again before the driver judges the answer, the member is
// fenced.
func fencedBeforeHooks(s *scene) {
	fenced(s, unknownMember, func(g *gateway) {
		select {
		case <-g.left:
		case <-time.After(5 * time.Second):
			assert.Fail(s, "a handler runs on while a hook is told that its commit has failed")
		}
	})
}

// forgotten expels the members that still have partitions, if not everything is committed after
// some time. An injected failure only tells a member that it is gone; the brokers do not know that,
// and may wait for the member forever.
func (s *scene) forgotten() {
	s.Helper()
	begun := time.Now()
	for time.Since(begun) < 15*time.Second {
		if s.missing(group) == "" {
			return
		}
		_ = kafkadriver.Sleep(s.Context(), 10*time.Millisecond)
	}
	require.NoError(s, s.cluster.Expel(s.Context(), group))
}

// canceled waits until a handler has been canceled.
func (s *scene) canceled(g *gateway) {
	s.Helper()
	s.eventually(func() (bool, string) { return len(g.ended()) > 0, "nothing was canceled" })
}

// The member stops. If it joined again, it would fence the member that took over its instance id.
func instance(s *scene) {
	s.topic(orders, 1)
	s.cluster.Fail(Failure{API: commitAPI, Code: fencedInstance, Count: 1})
	static := func(m *Member) { m.Instance = "one" }
	m := s.join(nil, static)
	s.produce(0, 0, 10)
	err := m.wait()
	require.ErrorIs(s, err, kafkaadapter.ErrFenced)
	assert.Equal(s, int16(fencedInstance), s.d.Code(err), "%v", err)
	next := s.join(nil, static)
	s.committed()
	next.leave()
	s.once(10)
}

// Partitions that are lost are given up at once, whatever the budget, and nothing of them is
// committed.
func lost(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 10)
	g := newGateway()
	m := s.join(g.only(func(m *kafkaadapter.Message) bool { return m.Offset > 0 }),
		configured(func(c *kafkaadapter.Config) {
			c.Tuning.Drain, c.Tuning.CommitEvery = 6*time.Second, time.Hour
		}))
	<-g.inside
	s.affected(1) // it could be committed
	failure := Failure{API: heartbeatAPI, Code: unknownMember, Count: 1 << 20}
	if s.mode == ServerSide {
		failure.API, failure.Code = epochAPI, fencedEpoch
	}
	expelled := s.cluster.Fail(failure)
	s.canceled(g)
	expelled.Remove()
	for _, cause := range g.ended() {
		assert.ErrorIs(s, cause, kafkaadapter.ErrFenced)
	}
	s.mu.Lock()
	assert.Zero(s, s.commits)
	s.mu.Unlock()
	close(g.open)
	s.affected(10)
	m.leave()
	s.committed()
	s.once(10)
}
