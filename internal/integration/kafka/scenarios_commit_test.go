package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

func commitFault(err *kerr.Error, count int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: sceneGroup,
		Err: err, Count: count}
}

// A member records everything and dies before any commit has arrived: all of it is
// delivered again, skipped, and committed.
func TestCrashBetweenRecordAndCommit(t *testing.T) { eachFlavor(t, crashBetweenRecordAndCommit) }

func crashBetweenRecordAndCommit(t *testing.T, f flavor) {
	const n = 300
	s := f.scene(t, 3, 2)
	refused := s.cluster.Fault(commitFault(kerr.NotCoordinator, -1))
	s.produce(numbered(0, 0, n/2)...)
	s.produce(numbered(1, n/2, n/2)...)
	first := s.join(nil)
	eventually(t, 10*time.Second, func() (bool, string) {
		missing := s.records(s.ids())
		return len(missing) == 0 && refused.Hits() > 0,
			fmt.Sprintf("%d commits were tried; without record: %v", refused.Hits(), missing)
	})
	first.crash()
	require.Zero(t, s.committed(0)+s.committed(1), "offsets committed in spite of the fault")
	s.gone()
	refused.Remove()

	second := s.join(nil)
	s.wantAll(10*time.Second, second)
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, n, s.skipped[driver.RebalanceReplay], "skipped %v", s.skipped)
}

// The broker refuses commits, some with errors that sarama hides from its caller ("silent"). In the
// end everything is committed, by the same member or after it has joined again, and nothing runs
// twice. Then the broker refuses the commit of the last message, and no message comes that would
// bring another commit.
func TestRefusedCommitsAreRepeated(t *testing.T) { eachFlavor(t, refusedCommitsAreRepeated) }

func refusedCommitsAreRepeated(t *testing.T, f flavor) {
	for _, c := range []struct {
		name string
		err  *kerr.Error
	}{
		{"silent: coordinator not available", kerr.CoordinatorNotAvailable},
		{"silent: not coordinator", kerr.NotCoordinator},
		{"silent: coordinator is loading", kerr.CoordinatorLoadInProgress},
		{"illegal generation", kerr.IllegalGeneration},
		{"unknown member", kerr.UnknownMemberID},
		{"rebalance in progress", kerr.RebalanceInProgress},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := f.scene(t, 3, 1).nobodyDies()
			first := s.cluster.Fault(commitFault(c.err, 2))
			joined := time.Now()
			m := s.join(nil)
			s.produce(numbered(0, 0, 100)...)
			s.wantCommittedToEnd(20 * time.Second)
			joining := time.Since(joined) // with two refusals, on this machine
			assert.Equal(t, 2, first.Hits(), "commits that were refused")
			last := s.cluster.Fault(commitFault(c.err, 1))
			s.produce(numbered(0, 100, 1)...)
			eventually(t, 20*time.Second, func() (bool, string) {
				return last.Hits() == 1, "no commit of the last message"
			})
			began := time.Now()
			s.wantCommittedToEnd(20 * time.Second)
			// Commits are made every 50 ms; some refusals cost another join first.
			assert.LessOrEqual(t, time.Since(began), 2*time.Second+joining,
				"to join and be refused twice took %v", joining)
			s.wantAll(time.Second, m)
		})
	}
}

// No commit is ever taken. Every effect still happens once, hooks get the errors of the broker, the
// member can leave, and the next one finds everything done.
func TestCommitsAreRefusedForEver(t *testing.T) { eachFlavor(t, commitsAreRefusedForEver) }

func commitsAreRefusedForEver(t *testing.T, f flavor) {
	for _, c := range []*kerr.Error{kerr.NotCoordinator, kerr.RebalanceInProgress,
		kerr.IllegalGeneration, kerr.UnknownMemberID} {
		t.Run(c.Message, func(t *testing.T) {
			t.Parallel()
			const n = 50
			s := f.scene(t, 3, 1)
			refused := s.cluster.Fault(commitFault(c, -1))
			s.produce(numbered(0, 0, n)...)
			first := s.join(nil)
			eventually(t, 10*time.Second, func() (bool, string) {
				return s.totalEffects() >= n && refused.Hits() > 3,
					fmt.Sprint(s.totalEffects(), " effects, ", refused.Hits(), " commits")
			})
			first.leave(t)
			require.Zero(t, s.committed(0), "committed in spite of the fault")
			refused.Remove()
			second := s.join(nil)
			s.wantAll(10*time.Second, second)
		})
	}
}

// A commit that was applied and answered with a timeout is made again: nothing goes back
// and nothing runs twice.
func TestCommitAppliedButTimedOut(t *testing.T) { eachFlavor(t, commitAppliedButTimedOut) }

func commitAppliedButTimedOut(t *testing.T, f flavor) {
	s := f.scene(t, 3, 1).nobodyDies()
	fault := s.cluster.Fault(commitFault(kerr.RequestTimedOut, 5))
	m := s.join(nil)
	s.produce(numbered(0, 0, 500)...)
	eventually(t, 10*time.Second, func() (bool, string) {
		return fault.Hits() == 5, "too few commits"
	})
	s.wantAll(10*time.Second, m)
	s.oracle.mu.Lock()
	defer s.oracle.mu.Unlock()
	assert.Zero(t, s.oracle.rewinds, "commits that went back")
}

// Offsets with gaps: a log that begins late, and transactions, whose markers and aborted
// messages lie between those that are delivered.
func TestCommittedAcrossGaps(t *testing.T) { eachFlavor(t, committedAcrossGaps) }

func committedAcrossGaps(t *testing.T, f flavor) {
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, 100)...)
	require.NoError(t, s.cluster.DeleteRecords(sceneTopic, 0, 40))
	s.oracle.skip(0, 40)
	m := s.join(nil)
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.committed(0) == 100, "the end was not committed"
	})
	assert.Equal(t, 60, s.totalEffects(), "effects from the start of the log on")
	// Offsets 100-109 aborted, 110 its marker, 111-120 committed, 121 its marker.
	s.oracle.expect(nil) // markers have no id, and so no record
	transact(t, s.cluster.ListenAddrs(), numbered(0, 200, 10), false)
	transact(t, s.cluster.ListenAddrs(), numbered(0, 300, 10), true)
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.committed(0) == 121, "the last message was not committed"
	})
	m.leave(t)
	assert.Zero(t, s.effectsOf(idOf(200)), "effects of an aborted message")
	assert.Equal(t, 1, s.effectsOf(idOf(300)), "effects of a committed message")
	assert.Equal(t, 1, s.effectsOf(idOf(309)), "effects of a committed message")
}

// The coordinator of the group moves to another broker while a member works.
func TestCoordinatorMoves(t *testing.T) { eachFlavor(t, coordinatorMoves) }

func coordinatorMoves(t *testing.T, f flavor) {
	s := f.scene(t, 3, 2).nobodyDies()
	m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
		return backoff.Sleep(ctx, 2*time.Millisecond)
	})
	for round := range 3 {
		s.produce(numbered(int32(round%2), 500*round, 500)...) // small
		eventually(t, 10*time.Second, func() (bool, string) {
			return s.totalEffects() > 500*round+100, "no progress"
		})
		s.cluster.RehashCoordinators()
	}
	s.wantAll(10*time.Second, m)
}
