package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// A confirmed offset is reported, and not sent again. Nothing uses the session (see fakeSession).
func TestCommitClientConfirms(t *testing.T) {
	var told []int64
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Committed = func(_ string, _ int32, next int64) { told = append(told, next) }
		c.Observer.CommitFailed = func(_ string, _ int32, err error) { t.Errorf("failed: %v", err) }
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.wantCommitted(3)
		sent := r.coordinator.sent()
		r.after(time.Hour)
		assert.Equal(t, sent, r.coordinator.sent(), "commits, with those of what was confirmed")
		r.group.add(message("last", ""))
		r.after(time.Second)
		r.wantCommitted(4)
		r.stop()
		r.wantStop()
		for i, request := range r.coordinator.requests {
			assert.Equal(t, groupName, request.ConsumerGroup)
			assert.Equal(t, "member", request.ConsumerID)
			assert.EqualValues(t, 1, request.ConsumerGroupGeneration)
			assert.Nil(t, request.GroupInstanceId)
			assert.False(t, r.coordinator.lookUps[i], "the coordinator was looked up again")
		}
	})
	require.NotEmpty(t, told)
	assert.EqualValues(t, 4, told[len(told)-1])
}

// Every error that does not fence is reported, and the commit is repeated until it succeeds. The
// coordinator is looked up again where that may help.
func TestCommitClientRepeats(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		lookUp bool
		apply  bool
	}{
		{"coordinator moved", sarama.ErrNotCoordinatorForConsumer, true, false},
		{"coordinator not available", sarama.ErrConsumerCoordinatorNotAvailable, true, false},
		{"coordinator is loading", sarama.ErrOffsetsLoadInProgress, false, false},
		{"rebalance in progress", sarama.ErrRebalanceInProgress, false, false},
		{"timed out", sarama.ErrRequestTimedOut, false, false},
		{"timed out, and applied", sarama.ErrRequestTimedOut, false, true},
		{"metadata too large", sarama.ErrOffsetMetadataTooLarge, false, false},
		{"not authorized", sarama.ErrGroupAuthorizationFailed, false, false},
		{"unknown topic", sarama.ErrUnknownTopicOrPartition, false, false},
		{"unknown code", sarama.KError(12345), false, false},
		{"connection cut", io.EOF, true, false},
		{"connection cut, and applied", io.EOF, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, times := range []int{1, 2, 1000} {
				var told []error
				var committed int
				inBubble(t, 1, nil, func(r *rig, cfg *kafkaadapter.Config) {
					r.coordinator.apply = c.apply
					r.coordinator.refuse(times, c.answer)
					cfg.Observer.CommitFailed = func(_ string, _ int32, err error) {
						told = append(told, err)
					}
					cfg.Observer.Committed = func(string, int32, int64) { committed++ }
				}, func(r *rig) {
					r.group.add(message("last", ""))
					r.after(time.Duration(times+2) * 250 * time.Millisecond)
					r.wantCommitted(1)
					r.wantRuns("last", 1)
					joins, _ := r.group.joined()
					assert.Equal(t, 1, joins, "sessions")
					require.Len(r.t, r.coordinator.lookUps, times+1)
					assert.Equal(t, []bool{false, c.lookUp}, r.coordinator.lookUps[:2])
				})
				require.Len(t, told, times)
				require.ErrorIs(t, told[0], c.answer)
				assert.Equal(t, 1, committed)
			}
		})
	}
}

// A fencing answer ends the session at once, and is the cause. The member joins again, and nothing
// is lost or done twice.
func TestCommitClientIsFenced(t *testing.T) {
	for _, code := range []sarama.KError{sarama.ErrUnknownMemberId, sarama.ErrIllegalGeneration} {
		t.Run(code.Error(), func(t *testing.T) {
			var told toldErrors
			inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
				r.coordinator.refuse(1, code)
				c.Observer.GroupError = told.add
			}, func(r *rig) {
				r.group.add(message("a", ""), message("b", ""))
				r.after(249 * time.Millisecond)
				assert.Empty(t, told.all(), "told before the commit")
				r.after(250 * time.Millisecond)
				require.NotEmpty(r.t, told.all())
				require.ErrorIs(r.t, told.all()[0], kafkaadapter.ErrFenced)
				require.ErrorIs(r.t, told.all()[0], code)
				assert.Equal(t, 1, r.coordinator.sent(), "commits of a session that is fenced")
				r.after(time.Minute)
				r.wantRunning()
				r.wantCommitted(2)
				r.wantRuns("a", 1)
				r.wantRuns("b", 1)
			})
		})
	}
}

// A member whose instance id another process has taken over stops, and commits nothing. A hook is
// still busy with an older error; the member must not join again meanwhile.
func TestFencedInstanceStops(t *testing.T) {
	var read chan struct{}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		read = make(chan struct{}) // made in the bubble
		r.coordinator.refuse(1, sarama.ErrFencedInstancedId)
		c.Observer.GroupError = func(error) { <-read }
	}, func(r *rig) {
		r.group.errs <- errors.New("an older one")
		r.group.add(message("a", ""))
		r.after(time.Minute)
		joins, _ := r.group.joined()
		assert.Equal(t, 1, joins, "it has joined again")
		close(read)
		err := r.wantEnd()
		require.ErrorIs(t, err, kafkaadapter.ErrFenced)
		require.ErrorIs(t, err, sarama.ErrFencedInstancedId)
		assert.Equal(t, 1, r.coordinator.sent(), "commits of a member that is fenced")
		r.wantCommitted(0)
	})
}

// A member that learns of this when it joins stops, too.
func TestFencedInstanceStopsWhenItJoins(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.after(time.Second)
		r.group.change(func() { r.group.refuse = []error{sarama.ErrFencedInstancedId} })
		r.group.rebalance()
		r.after(time.Minute)
		require.ErrorIs(t, r.wantEnd(), kafkaadapter.ErrFenced)
	})
}

// While the group fences every commit, nothing is committed, and the effects still happen once.
func TestCommitClientIsFencedForEver(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, _ *kafkaadapter.Config) {
		r.coordinator.forever = sarama.ErrUnknownMemberId
	}, func(r *rig) {
		r.group.add(ids(5)...)
		r.after(10 * time.Minute)
		r.wantCommitted(0)
		joins, _ := r.group.joined()
		assert.True(t, 5 <= joins && joins <= 1500, "joined %d times in 10 minutes", joins)
		r.coordinator.set(func() { r.coordinator.forever = nil })
		r.after(time.Minute)
		r.wantCommitted(5)
		for i := range 5 {
			r.wantRuns(fmt.Sprint("id", i), 1)
		}
	})
}

// When a member is fenced, sarama ends the session's context with that error as the cause.
func TestHeartbeatFences(t *testing.T) {
	for cause, fenced := range map[error]bool{
		sarama.ErrUnknownMemberId: true, sarama.ErrIllegalGeneration: true,
		sarama.ErrFencedInstancedId:   true,
		sarama.ErrRebalanceInProgress: false, context.Canceled: false,
	} {
		inBubble(t, 1, nil, nil, func(r *rig) {
			r.after(time.Second)
			_, session := r.group.joined()
			state := r.consumer.session(session)
			session.cancel(cause)
			r.after(time.Second)
			ended := context.Cause(state.assigned)
			require.ErrorIs(r.t, ended, cause, "why the partitions ended")
			assert.Equal(t, fenced, errors.Is(ended, kafkaadapter.ErrFenced), cause)
			if !fenced {
				assert.NoError(t, context.Cause(state.fenced), cause)
				return
			}
			require.ErrorIs(r.t, context.Cause(state.fenced), kafkaadapter.ErrFenced)
			require.ErrorIs(r.t, context.Cause(state.fenced), cause)
		})
	}
}

// A running handler does not keep the session of a fenced member alive.
func TestFencedPartitionIsGivenUp(t *testing.T) {
	inBubble(t, 1, func(ctx context.Context, _ *kafkaadapter.Message) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, func(_ *rig, c *kafkaadapter.Config) { c.Tuning.Drain = time.Second }, func(r *rig) {
		r.group.add(message("a", ""))
		r.after(time.Second)
		_, session := r.group.joined()
		r.consumer.session(session).fence(fencedBy(sarama.ErrUnknownMemberId))
		r.after(2 * time.Second)
		_, now := r.group.joined()
		assert.NotSame(t, session, now, "the session goes on")
		r.stop()
		r.after(time.Minute)
	})
}

// stubSession has a generation that changes, as a session of a cooperative group does.
type stubSession struct {
	sarama.ConsumerGroupSession
	generation int32
	member     string
	committing func()
}

// GenerationID implements sarama.ConsumerGroupSession.
func (s *stubSession) GenerationID() int32 { return s.generation }

// MemberID implements sarama.ConsumerGroupSession.
func (s *stubSession) MemberID() string { return s.member }

// Commit implements sarama.ConsumerGroupSession.
func (s *stubSession) Commit() {
	if s.committing != nil {
		s.committing()
	}
}

// stubbed are commits on a stub, with both partitions of the topic.
type stubbed struct {
	*commits
	coordinator *fakeCoordinator
	fenced      int        // how often
	told        toldErrors // of commits that failed
}

func newStubbed(t *testing.T, s *stubSession, instance string) *stubbed {
	t.Helper()
	out := &stubbed{coordinator: newFakeCoordinator(newFakeGroup(t, 2))}
	out.coordinator.config.Consumer.Group.InstanceId = instance
	cfg := usable(t, kafkaadapter.Config{})
	cfg.Observer.CommitFailed = func(_ string, _ int32, err error) { out.told.add(err) }
	consumer, err := newConsumer(out.coordinator, groupName, cfg)
	require.NoError(t, err)
	topics := consumer.topics.Begin(func(error) {})
	t.Cleanup(topics.Close)
	out.commits = consumer.newCommits(s, &session{
		fence: func(error) { out.fenced++ }, topics: topics,
	})
	for partition := range int32(2) {
		out.Add(topic, partition)
	}
	return out
}

// wantConfirmed requires the offset that is confirmed for a partition, -1 for none.
func (c *stubbed) wantConfirmed(t *testing.T, partition int32, want int64) {
	t.Helper()
	next, ok := c.Confirmed(topic, partition)
	if !ok {
		next = -1
	}
	assert.Equal(t, want, next, "what is confirmed")
}

// A commit under an old generation is refused, but the member is not fenced: the session knows the
// new generation already, or learns it from a join that is under way.
func TestOldGenerationIsNotFenced(t *testing.T) {
	for _, c := range []struct {
		name   string
		code   sarama.KError
		change func(*stubSession) // while the join is waited for
		fenced int
	}{
		{"a new generation", sarama.ErrIllegalGeneration, func(s *stubSession) {
			s.generation++
		}, 0},
		{"a new member id", sarama.ErrUnknownMemberId, func(s *stubSession) {
			s.member = "other"
		}, 0},
		{"nothing new", sarama.ErrIllegalGeneration, func(*stubSession) {}, 1},
		{"an instance id that somebody else has", sarama.ErrFencedInstancedId,
			func(s *stubSession) { s.generation++ }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &stubSession{generation: 7, member: "member"}
			s.committing = func() { c.change(s) }
			commits := newStubbed(t, s, "")
			commits.coordinator.answers = []error{c.code}
			commits.Mark(topic, 0, 5)
			commits.commit()
			assert.Equal(t, c.fenced, commits.fenced)
			commits.commit()
			if c.fenced > 0 {
				commits.wantConfirmed(t, 0, -1)
				return
			}
			commits.wantConfirmed(t, 0, 5)
			requests := commits.coordinator.requests
			last := requests[len(requests)-1]
			assert.Equal(t, s.generation, last.ConsumerGroupGeneration)
			assert.Equal(t, s.member, last.ConsumerID)
		})
	}
}

// Offsets that were not committed when a partition was given up are not committed later: another
// member may have the partition in the next generation. When it comes back, it begins anew.
func TestForgottenPartitionIsNotCommitted(t *testing.T) {
	commits := newStubbed(t, &stubSession{generation: 1, member: "member"}, "")
	commits.Mark(topic, 0, 50)
	commits.commit()
	commits.coordinator.answers = []error{sarama.ErrOffsetsLoadInProgress}
	commits.Mark(topic, 0, 60)
	commits.Mark(topic, 1, 9)
	commits.commit()
	commits.Forget(topic, 0)
	commits.commit()
	require.Len(t, commits.coordinator.requests, 3)
	_, _, err := commits.coordinator.requests[2].Offset(topic, 0)
	require.Error(t, err, "a partition that was given up is committed")
	commits.Add(topic, 0)
	commits.wantConfirmed(t, 0, -1)
	commits.Mark(topic, 0, 55) // the group's offset was reset
	commits.commit()
	commits.wantConfirmed(t, 0, 55)
}

// A partition that the answer leaves out is not taken for committed.
func TestIncompleteAnswer(t *testing.T) {
	commits := newStubbed(t, &stubSession{generation: 1, member: "member"}, "")
	delete(commits.coordinator.group.log, 1) // the coordinator knows nothing of it
	commits.Mark(topic, 0, 5)
	commits.Mark(topic, 1, 6)
	commits.commit()
	commits.wantConfirmed(t, 0, 5)
	commits.wantConfirmed(t, 1, -1)
	told := commits.told.all()
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], sarama.ErrIncompleteResponse)
}

// A static member is known by its instance id, where the request has room for it.
func TestCommitOfAStaticMember(t *testing.T) {
	commits := newStubbed(t, &stubSession{generation: 1, member: "member"}, "pod-1")
	for version, want := range map[sarama.KafkaVersion]bool{sarama.V2_8_0_0: true,
		sarama.V2_2_0_0: false} {
		commits.coordinator.config.Version = version
		r := commits.request()
		if !want {
			assert.Nil(t, r.GroupInstanceId, version)
		} else if assert.NotNil(t, r.GroupInstanceId, version) {
			assert.Equal(t, "pod-1", *r.GroupInstanceId)
		}
	}
}

// Handlers are canceled at once, not when the drain budget is used up: another member has the
// partition.
func TestFencingCancelsHandlersAtOnce(t *testing.T) {
	var after time.Duration
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID != "slow" || after > 0 {
			return nil
		}
		began := time.Now()
		<-ctx.Done()
		after = time.Since(began)
		return ctx.Err()
	}
	inBubble(t, 1, handler, func(r *rig, _ *kafkaadapter.Config) {
		r.coordinator.refuse(1, sarama.ErrIllegalGeneration)
	}, func(r *rig) {
		r.group.add(message("quick", ""), message("slow", ""))
		r.after(time.Minute)
		assert.True(t, 0 < after && after <= time.Second, "cancelled after %v", after)
		r.wantCommitted(2)
	})
}
