package kafkafranz

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Commits name the leader epoch of the last message before them.
func TestCommitsHaveEpochs(t *testing.T) {
	r := newRig(t, 1)
	m := r.join(nil, nil)
	r.produce(0, 0, 5)
	r.committed()
	epoch := r.cluster.GroupInfo(group).Commits[orders][0].LeaderEpoch
	assert.NotEqual(t, int32(-1), epoch)
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

// keep removes a partition that was given up from a commit, even from one that was built before.
// It refuses a commit of another member id.
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

// A commit that is answered with a fencing error fences no partition that was lost or revoked while
// the commit was under way.
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
