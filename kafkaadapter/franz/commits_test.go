package franz

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
			var committed, failed []error
			var mu sync.Mutex
			g := newGateway()
			m := r.join(func(ctx context.Context, m *Message) error {
				if m.Offset == 4 {
					return g.handle(ctx, m)
				}
				return nil
			}, func(c *Config) {
				c.Observer.Committed = func(string, int32, int64) {
					mu.Lock()
					committed = append(committed, nil)
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
			if err := fault.Wait(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			r.eventually(func() (bool, string) { // it goes on without another message
				info := r.cluster.GroupInfo(group)
				return info.Commits[orders][0].Offset == 4, "not committed"
			})
			if len(g.ended()) > 0 {
				t.Error("a handler was cancelled")
			}
			close(g.open)
			r.committed()
			m.leave()
			r.once(5)
			mu.Lock()
			defer mu.Unlock()
			if len(committed) == 0 {
				t.Error("no commit was told")
			}
			// kgo repeats what is retriable itself, within an attempt.
			if !code.Retriable && !slices.ContainsFunc(failed, func(err error) bool {
				return errors.Is(err, code)
			}) {
				t.Errorf("told: %v", failed)
			}
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
				m := r.join(func(ctx context.Context, m *Message) error {
					switch m.Offset {
					case 4:
						<-g.inside // or it could be committed before the next one has come
					case 5:
						return g.handle(ctx, m)
					}
					return nil
				}, func(c *Config) {
					c.Drain = 2 * time.Second
					c.Observer.CommitFailed = func(string, int32, error) {
						select {
						case <-g.left:
						case <-time.After(5 * time.Second):
							t.Error("the handler runs on while a hook is told that its commit has failed")
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
					if !errors.Is(cause, ErrFenced) || !errors.Is(cause, code) {
						t.Errorf("a handler was cancelled for %v", cause)
					}
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
	if err := m.wait(); !errors.Is(err, kerr.FencedInstanceID) || !errors.Is(err, ErrFenced) {
		t.Errorf("Run: %v", err)
	}
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
	if r.epochs[-1] || len(r.epochs) == 0 {
		t.Errorf("epochs of commits: %v", r.epochs)
	}
	r.mu.Unlock()
	m.leave()
}

func TestEpochs(t *testing.T) {
	var e epochs
	if got := e.before(10); got != -1 {
		t.Errorf("of nothing: %d", got)
	}
	for _, r := range []epochFrom{{5, 1}, {6, 1}, {7, 3}, {8, 3}, {20, 4}} {
		e.add(r.offset, r.epoch)
	}
	for _, c := range []struct {
		next int64
		want int32
	}{{5, -1}, {6, 1}, {7, 1}, {8, 3}, {20, 3}, {21, 4}, {100, 4}} {
		if got := e.before(c.next); got != c.want {
			t.Errorf("before %d: %d, want %d", c.next, got, c.want)
		}
	}
	if len(e) != 1 {
		t.Errorf("%d epochs are kept", len(e))
	}
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
	c := newCommits(&session{c: &Consumer{}})
	for _, topic := range []string{"a", "b"} {
		for p := range int32(2) {
			c.begin(topicPartition{topic, p}, "me")
			c.mark(topic, p, 7)
		}
	}
	all, offsets := c.unconfirmed()
	if len(all) != 4 || offsets["b"][1].Offset != 7 {
		t.Fatalf("due: %v, %v", all, offsets)
	}
	c.forget(topicPartition{"a", 0})
	c.forget(topicPartition{"b", 0})
	c.forget(topicPartition{"b", 1})
	c.begin(topicPartition{"b", 1}, "me") // given back meanwhile
	r := request("me")
	if err := c.keep(r, all); err != nil {
		t.Fatal(err)
	}
	if len(r.Topics) != 1 || r.Topics[0].Topic != "a" || len(r.Topics[0].Partitions) != 1 ||
		r.Topics[0].Partitions[0].Partition != 1 || len(all) != 1 {
		t.Errorf("kept: %+v of %v", r.Topics, all)
	}
	if err := c.keep(request("another"), all); !isFencing(err) {
		t.Errorf("under another id: %v", err)
	}
	if _, ok := c.confirmed("a", 1); ok {
		t.Error("what was not answered is confirmed")
	}
	if next, ok := c.confirmed("b", 0); !ok || next < 7 {
		t.Errorf("what was given up is due: %d, %v", next, ok)
	}
	c.forgetAll()
	if all, _ := c.unconfirmed(); len(all) > 0 {
		t.Errorf("due: %v", all)
	}
}

// A fencing answer to what has been given up meanwhile, lost or revoked, fences nothing.
func TestFencedOffFromWhatIsGone(t *testing.T) {
	c := newCommits(&session{c: &Consumer{}})
	kept, gone, back := topicPartition{"a", 0}, topicPartition{"a", 1}, topicPartition{"a", 2}
	for _, at := range []topicPartition{kept, gone, back} {
		c.begin(at, "me")
		c.mark(at.topic, at.partition, 7)
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
