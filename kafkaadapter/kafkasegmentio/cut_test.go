package kafkasegmentio

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
)

// The group's offset is beyond the end of the log, as after an unclean election. The messages below
// it are handled, once, and the group continues behind them.
func TestLogCutBelowTheCommit(t *testing.T) {
	r := newRig(t, 1)
	r.free = true // the first commit is not of a member
	r.produce(0, 0, 6)
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation = group, -1
	topic, at := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	topic.Topic, topic.TopicID, at.Offset = orders, r.cluster.TopicInfo(orders).TopicID, 9
	topic.Partitions = append(topic.Partitions, at)
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), r.client)
	require.NoError(t, err)
	require.Zero(t, answer.Topics[0].Partitions[0].ErrorCode)
	m := r.join(nil, nil)
	r.eventually(func() (bool, string) { return r.totalEffects() == 6, "they are not handled" })
	r.produce(0, 6, 6)
	r.committed()
	m.leave()
	r.once(12)
	require.True(t, r.told(kafkaadapter.ErrLogCut))
}
