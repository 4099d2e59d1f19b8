package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// commitLog is what the hooks of commits have reported.
type commitLog struct {
	mu        sync.Mutex
	marked    map[int32]time.Time // when Committing was called last
	slowest   time.Duration       // from Committing to Committed
	confirmed int
	failed    []error
	fenced    []error
}

func (l *commitLog) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *commitLog) failures(code sarama.KError) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.failed {
		if errors.Is(err, code) {
			n++
		}
	}
	return n
}

// observe sets the commit hooks of a member, and wraps its GroupError hook.
func (l *commitLog) observe(mc *memberConfig) {
	o := &mc.Observer
	l.marked = map[int32]time.Time{}
	o.Committing = func(_ string, p int32, _ int64) { l.note(func() { l.marked[p] = time.Now() }) }
	o.Committed = func(_ string, p int32, _ int64) {
		l.note(func() {
			l.confirmed, l.slowest = l.confirmed+1, max(l.slowest, time.Since(l.marked[p]))
		})
	}
	o.CommitFailed = func(_ string, _ int32, err error) {
		l.note(func() { l.failed = append(l.failed, err) })
	}
	told := o.GroupError
	o.GroupError = func(err error) {
		if errors.Is(err, kafkaadapter.ErrFenced) {
			l.note(func() { l.fenced = append(l.fenced, err) })
		}
		if told != nil {
			told(err)
		}
	}
}

// While the broker refuses every commit, no handler stops, and CommitFailed gets the error code.
// When the refusals end, everything is committed, although no further message comes.
func TestRefusalsForEverAreTold(t *testing.T) {
	for _, c := range []struct {
		refusal *kerr.Error
		code    sarama.KError
		fences  bool
	}{
		{kerr.NotCoordinator, sarama.ErrNotCoordinatorForConsumer, false},
		{kerr.CoordinatorLoadInProgress, sarama.ErrOffsetsLoadInProgress, false},
		{kerr.RebalanceInProgress, sarama.ErrRebalanceInProgress, false},
		{kerr.OffsetMetadataTooLarge, sarama.ErrOffsetMetadataTooLarge, false},
		{kerr.GroupAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, false},
		{kerr.UnknownMemberID, sarama.ErrUnknownMemberId, true},
		{kerr.IllegalGeneration, sarama.ErrIllegalGeneration, true},
	} {
		t.Run(c.refusal.Message, func(t *testing.T) {
			t.Parallel()
			var log commitLog
			s := cooperative.scene(t, 3, 1).nobodyDies()
			refused := s.cluster.Fault(commitFault(c.refusal, -1))
			s.produce(numbered(0, 0, 300)...)
			m := s.join(nil, log.observe)
			eventually(t, 15*time.Second, func() (bool, string) {
				return s.totalEffects() == 300 && refused.Hits() >= 3,
					fmt.Sprintf("%d effects, %d refusals", s.totalEffects(), refused.Hits())
			})
			assert.Zero(t, s.committed(0), "what is committed")
			refused.Remove()
			s.wantCommittedToEnd(10 * time.Second)
			s.wantAll(time.Second, m)
			assert.GreaterOrEqual(t, log.failures(c.code), 3, "the broker refused %d; all: %v",
				refused.Hits(), log.failed)
			assert.Equal(t, c.fences, len(log.fenced) > 0, "fenced with %v", log.fenced)
		})
	}
}

// The broker answers a member's commits as if another process had taken its instance id. The member
// ends with that error and commits nothing. The next member commits everything.
func TestFencedInstanceEnds(t *testing.T) {
	s := cooperative.scene(t, 3, 1).nobodyDies()
	refused := s.cluster.Fault(commitFault(kerr.FencedInstanceID, -1))
	s.produce(numbered(0, 0, 300)...)
	static := func(mc *memberConfig) { mc.instance = "pod-1" }
	m := s.join(nil, static)
	err := <-m.done
	require.ErrorIs(t, err, kafkaadapter.ErrFenced)
	require.ErrorIs(t, err, sarama.ErrFencedInstancedId)
	require.NoError(t, m.close())
	assert.Zero(t, s.committed(0), "what is committed")
	refused.Remove()
	next := s.join(nil, static)
	s.wantCommittedToEnd(10 * time.Second)
	s.wantAll(time.Second, next)
}

// Members come and go while offsets are committed all the time. The coordinator raises the
// generation before a member learns of it, and until then refuses the commits of that member. Such
// a refusal does not fence the member.
func TestRebalancesDoNotFence(t *testing.T) { eachFlavor(t, rebalancesDoNotFence) }

func rebalancesDoNotFence(t *testing.T, f flavor) {
	s := f.scene(t, 3, 4).nobodyDies()
	var log commitLog
	met := func() int { return log.failures(sarama.ErrIllegalGeneration) }
	s.cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		// Do not wait for a refusal here: sarama's driver reports it only after the join.
		s.cluster.SleepControl(func() { <-time.After(150 * time.Millisecond) })
		return nil, nil, false
	})
	work := func(ctx context.Context, _ *kafkaadapter.Message) error {
		if f.steady && met() == 0 {
			return backoff.Sleep(ctx, 20*time.Millisecond) // all of it would take two minutes
		}
		return backoff.Sleep(ctx, time.Millisecond)
	}
	first := s.join(work, log.observe, func(mc *memberConfig) {
		t := &mc.Tuning
		t.CommitEvery, t.CommitCount, t.Workers = 10*time.Millisecond, 5, 1
	})
	for p := range int32(4) {
		s.produce(numbered(p, int(p)*2000, 1500)...)
	}
	for i := 0; i < 2 || f.steady && i < 20 && met() == 0; i++ {
		eventually(t, 10*time.Second, func() (bool, string) {
			return s.committed(0) > 0, "nothing is committed"
		})
		second := s.join(work)
		s.wantMembers(2)
		second.leave(t)
		s.wantMembers(1)
	}
	s.wantAll(30*time.Second, first)
	assert.Empty(t, log.fenced, "fenced")
	t.Logf("%d confirmed, %d refused for their generation", log.confirmed, met())
	if f.steady {
		assert.NotZero(t, met(), "commits that met the change of the generation")
	}
}

// A static member commits under its instance id.
func TestCommitsOfAStaticMember(t *testing.T) { eachFlavor(t, commitsOfAStaticMember) }

func commitsOfAStaticMember(t *testing.T, f flavor) {
	s := f.scene(t, 1, 1).nobodyDies()
	s.produce(numbered(0, 0, 100)...)
	m := s.join(nil, func(mc *memberConfig) { mc.instance = "pod-1" })
	s.wantCommittedToEnd(10 * time.Second)
	members := s.cluster.GroupInfo(sceneGroup).Members
	require.Len(t, members, 1)
	assert.NotNil(t, members[0].InstanceID)
	s.wantAll(time.Second, m)
	commit := s.cluster.GroupInfo(sceneGroup).Commits[sceneTopic][0]
	assert.Equal(t, int32(-1), commit.LeaderEpoch, "the leader epoch is not known")
}

// The coordinator also leads the partition, and a fetch is open. A commit over the client of the
// consumer group then waits for the fetch. A commit over a client of its own does not wait.
// Handlers wait for neither.
func TestCommitsDoNotWaitForFetches(t *testing.T) {
	for name, c := range map[string]struct {
		bug bug
		// where commits do not wait, it is so long that a slow machine does not look like a wait
		poll  time.Duration
		waits bool
	}{
		"client of the group": {sharesClient, time.Second, true},
		"client of its own":   {0, 12 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poll := c.poll
			s := eager.scene(t, 1, 1)
			var handled []time.Duration
			var produced time.Time
			m := s.join(func(context.Context, *kafkaadapter.Message) error {
				s.note(func() { handled = append(handled, time.Since(produced)) })
				return nil
			}, func(mc *memberConfig) {
				mc.bug = c.bug
				mc.client = func(c *sarama.Config) {
					c.Net.ReadTimeout = max(c.Net.ReadTimeout, 2*poll)
					// heartbeats wait for fetches, too
					c.Consumer.MaxWaitTime, c.Consumer.Group.Session.Timeout = poll, 20*poll
				}
			})
			s.produce(numbered(0, 0, 1)...)
			s.wantCommittedToEnd(20 * time.Second)
			var took []time.Duration
			for i := 1; i <= 3; i++ {
				s.note(func() { produced = time.Now() })
				s.produce(numbered(0, i, 1)...)
				s.wantCommittedToEnd(30 * time.Second)
				took = append(took, time.Since(produced))
			}
			assert.Equal(t, c.waits, slices.Max(took) > poll/2, "commits took %v", took)
			s.wantAll(5*time.Second, m)
			slowest := slices.Max(handled[1:])
			if c.waits {
				slowest = slices.Min(handled[1:]) // a second is not long for a busy machine
			}
			assert.LessOrEqual(t, slowest, poll/2, "messages were handled after %v", handled[1:])
			t.Logf("handled after %v, committed after %v", handled[1:], took)
		})
	}
}
