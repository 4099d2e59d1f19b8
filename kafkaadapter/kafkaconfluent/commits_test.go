package kafkaconfluent

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
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
			}, nil)
			r.produce(0, 0, 5)
			<-g.inside
			require.NoError(t, fault.Wait(t.Context(), 3))
			r.eventually(func() (bool, string) { // without another message
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
			// librdkafka repeats some within an attempt.
			assert.True(t, code.Retriable || slices.ContainsFunc(failed, func(err error) bool {
				return int16(codeOf(err)) == code.Code
			}), "told: %v", failed)
		})
	}
}

// An answer that fences this member off cancels its handlers at once, and the member joins
// again.
func TestFencedByACommit(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration,
		kerr.FencedMemberEpoch} {
		modes := []mode{eager, cooperative}
		if code != kerr.IllegalGeneration { // there are no generations in KIP-848
			modes = append(modes, nextGen)
		}
		t.Run(code.Message, func(t *testing.T) {
			inModes(t, modes, func(t *testing.T, mode mode) {
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
				}, nil)
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
				}
				close(g.open)
				r.expire(2 * sessionTimeout)
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
	m := r.join(nil, nil, kafka.ConfigMap{"group.instance.id": "one"})
	r.produce(0, 0, 10)
	err := m.wait()
	require.Equal(t, kafka.ErrFencedInstanceID, codeOf(err), "%v", err)
	require.ErrorIs(t, err, kafkaadapter.ErrFenced)
	next := r.join(nil, nil, kafka.ConfigMap{"group.instance.id": "one"})
	r.committed()
	next.leave()
	r.once(10)
}
