package kafkafranz

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Every refusal of a commit is told and repeated until the offset is there, unless it fences
// the member off.
func TestRefusedCommits(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
		kerr.RebalanceInProgress,
		kerr.RequestTimedOut, kerr.OffsetMetadataTooLarge, kerr.GroupAuthorizationFailed,
		kerr.UnknownServerError, kerr.UnstableOffsetCommit, kerr.StaleMemberEpoch,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cooperative, 1)
			fault := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit},
				Err: code, Count: 3})
			committed, failed := 0, []error(nil)
			var mu sync.Mutex
			g := newGateway()
			m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
				if m.Offset == 4 {
					return g.handle(ctx, m)
				}
				return nil
			}, func(c *kafkaadapter.Config) {
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
			})
			r.produce(0, 0, 5)
			<-g.inside
			require.NoError(t, fault.Wait(t.Context(), 3))
			r.eventually(func() (bool, string) { // it goes on without another message
				info := r.cluster.GroupInfo(group)
				return info.Commits[orders][0].Offset == 4, "not committed"
			})
			assert.Empty(t, g.ended(), "a handler was cancelled")
			close(g.open)
			r.committed()
			m.leave()
			r.once(5)
			mu.Lock()
			defer mu.Unlock()
			assert.NotZero(t, committed, "no commit was told")
			// kgo repeats what is retriable itself, within an attempt.
			assert.True(t, code.Retriable || slices.ContainsFunc(failed, func(err error) bool {
				return errors.Is(err, code)
			}), "told: %v", failed)
		})
	}
}

// An answer that fences this member off cancels its handlers at once, and the member joins
// again. The hook gives the client's own join all the time it needs: a client that has joined
// again before the answer is judged is fenced all the same.
func TestFencedByACommit(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration,
		kerr.FencedMemberEpoch} {
		t.Run(code.Message, func(t *testing.T) {
			eachMode(t, func(t *testing.T, mode mode) {
				r := newRig(t, mode, 1)
				g := newGateway()
				m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
					switch m.Offset {
					case 4:
						<-g.inside // or it could be committed before the next one has come
					case 5:
						return g.handle(ctx, m)
					}
					return nil
				}, func(c *kafkaadapter.Config) {
					c.Tuning.Drain = 2 * time.Second
					c.Observer.CommitFailed = func(string, int32, error) {
						select {
						case <-g.left:
						case <-time.After(5 * time.Second):
							assert.Fail(t, "the handler runs on while a hook is told that "+
								"its commit has failed")
						}
					}
				})
				r.produce(0, 0, 4)
				r.committed()
				r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code})
				r.produce(0, 4, 2) // the first one is committed, the second one runs
				<-g.inside
				r.eventually(func() (bool, string) {
					return len(g.ended()) > 0, "nothing was cancelled"
				})
				for _, cause := range g.ended() {
					assert.ErrorIs(t, cause, kafkaadapter.ErrFenced)
					assert.ErrorIs(t, cause, code)
				}
				close(g.open)
				r.committed()
				m.leave()
				r.once(6)
			})
		})
	}
}

// Whoever has taken over the instance id is not fenced in turn: this member stops.
func TestFencedInstance(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.FencedInstanceID})
	m := r.join(nil, nil, kgo.InstanceID("one"))
	r.produce(0, 0, 10)
	err := m.wait()
	require.ErrorIs(t, err, kerr.FencedInstanceID)
	require.ErrorIs(t, err, kafkaadapter.ErrFenced)
	next := r.join(nil, nil, kgo.InstanceID("one"))
	r.committed()
	next.leave()
	r.once(10)
}

// Commits name the leader epoch of the last message before them.
func TestCommitsHaveEpochs(t *testing.T) {
	r := newRig(t, cooperative, 1)
	m := r.join(nil, nil)
	r.produce(0, 0, 5)
	r.committed()
	r.mu.Lock()
	assert.NotEmpty(t, r.epochs)
	assert.NotContains(t, r.epochs, int32(-1))
	r.mu.Unlock()
	m.leave()
}

func TestEpochs(t *testing.T) {
	var e epochs
	assert.EqualValues(t, -1, e.before(10), "of nothing")
	for _, r := range []epochFrom{{5, 1}, {6, 1}, {7, 3}, {8, 3}, {20, 4}} {
		e.add(r.offset, r.epoch)
	}
	for _, c := range []struct {
		next int64
		want int32
	}{{5, -1}, {6, 1}, {7, 1}, {8, 3}, {20, 3}, {21, 4}, {100, 4}} {
		assert.Equal(t, c.want, e.before(c.next), "before %d", c.next)
	}
	assert.Len(t, e, 1, "epochs that are kept")
}

// What has been given up is not in a commit any more, also one that was asked for before, and
// nor is what is of another membership.
func TestCommitsOfWhatIsGone(t *testing.T) {
	request := func(member string) *kmsg.OffsetCommitRequest {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.MemberID = member
		for _, topic := range []string{"a", "b"} {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic = topic
			for p := range int32(2) {
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition = p
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
		return r
	}
	c := newCommits(&session{engine: &kafkadriver.Engine{}, base: t.Context()})
	for _, topic := range []string{"a", "b"} {
		for p := range int32(2) {
			c.begin(topicPartition{topic, p}, "me")
			c.Mark(topic, p, 7)
		}
	}
	all, offsets := c.unconfirmed()
	require.Len(t, all, 4)
	require.EqualValues(t, 7, offsets["b"][1].Offset)
	c.forget(topicPartition{"a", 0})
	c.forget(topicPartition{"b", 0})
	c.forget(topicPartition{"b", 1})
	c.begin(topicPartition{"b", 1}, "me") // given back meanwhile
	r := request("me")
	require.NoError(t, c.keep(r, all))
	require.Len(t, all, 1)
	require.Len(t, r.Topics, 1)
	require.Len(t, r.Topics[0].Partitions, 1)
	assert.Equal(t, "a", r.Topics[0].Topic)
	assert.EqualValues(t, 1, r.Topics[0].Partitions[0].Partition)
	assert.True(t, isFencing(c.keep(request("another"), all)), "under another id")
	_, ok := c.Confirmed("a", 1)
	assert.False(t, ok, "what was not answered is confirmed")
	next, ok := c.Confirmed("b", 0)
	assert.True(t, ok && next >= 7, "what was given up is due: %d, %v", next, ok)
	c.ForgetTopic("")
	all, _ = c.unconfirmed()
	assert.Empty(t, all, "due")
}

// A fencing answer to what has been given up meanwhile, lost or revoked, fences nothing.
func TestFencedOffFromWhatIsGone(t *testing.T) {
	c := newCommits(&session{engine: &kafkadriver.Engine{}, base: t.Context()})
	kept, gone, back := topicPartition{"a", 0}, topicPartition{"a", 1}, topicPartition{"a", 2}
	for _, at := range []topicPartition{kept, gone, back} {
		c.begin(at, "me")
		c.Mark(at.topic, at.partition, 7)
	}
	all, _ := c.unconfirmed()
	c.forget(gone)
	c.forget(back)
	c.begin(back, "me")
	for _, at := range []topicPartition{gone, back} {
		assert.NoError(t, c.fencing(all, map[topicPartition]error{at: kerr.IllegalGeneration}), at)
	}
	assert.ErrorIs(t, c.fencing(all, map[topicPartition]error{kept: kerr.IllegalGeneration}),
		kerr.IllegalGeneration)
	assert.NoError(t, c.fencing(all, map[topicPartition]error{kept: kerr.RebalanceInProgress}))
}
