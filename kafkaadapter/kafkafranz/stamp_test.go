package kafkafranz

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// byName has the client commit as brokers before Apache Kafka 4.2 have it: to whatever topic has
// the name.
func byName() kgo.Opt {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	versions.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9)
	return kgo.MaxVersions(versions)
}

// eachCommit runs a story for both ways in which a commit names its topic, and for both protocols.
func eachCommit(t *testing.T, story func(t *testing.T, m mode, options ...kgo.Opt)) {
	t.Helper()
	for by, options := range map[string][]kgo.Opt{"by UUID": nil, "by name": {byName()}} {
		for _, mode := range []mode{cooperative, nextGen} {
			t.Run(mode.name+"/"+by, func(t *testing.T) {
				t.Parallel()
				story(t, mode, options...)
			})
		}
	}
}

// commitAs commits an offset as some client of the group has done.
func (r *rig) commitAs(offset int64, metadata string) {
	r.t.Helper()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation = group, -1
	topic, partition := kmsg.NewOffsetCommitRequestTopic(),
		kmsg.NewOffsetCommitRequestTopicPartition()
	topic.Topic, partition.Offset, partition.Metadata = orders, offset, &metadata
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	client := r.newClient(byName())
	defer client.Close()
	answer, err := request.RequestWith(r.t.Context(), client)
	require.NoError(r.t, err)
	require.NoError(r.t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}

// uuid is that of the topic of orders.
func (r *rig) uuid() [16]byte {
	r.t.Helper()
	uuids, err := uuidsOf(r.t.Context(), r.client, []string{orders})
	require.NoError(r.t, err)
	require.NotZero(r.t, uuids[orders])
	return uuids[orders]
}

// A committed offset counts for the topic that it was committed for, and for no other of its name.
func TestOffsetOfAnotherTopicIsNotStartedAt(t *testing.T) {
	for name, row := range map[string]struct {
		metadata func(r *rig) string
		effects  int
	}{
		"of this topic": {func(r *rig) string {
			return kafkadriver.Stamp(kafkadriver.TopicID(r.uuid()))
		}, 2},
		"of one that was deleted": {func(*rig) string {
			return kafkadriver.Stamp(kafkadriver.TopicID([16]byte{1}))
		}, 6},
		"of a foreign client": {func(*rig) string { return "consumer-1" }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			eachCommit(t, func(t *testing.T, mode mode, options ...kgo.Opt) {
				r := newRig(t, mode, 1)
				r.early = true // the first commit is not of a member
				r.produce(0, 0, 6)
				r.commitAs(4, row.metadata(r))
				m := r.join(nil, nil, options...)
				r.eventually(func() (bool, string) {
					metadata := r.cluster.GroupInfo(group).Commits[orders][0].Metadata
					return r.totalEffects() == row.effects &&
							metadata == kafkadriver.Stamp(kafkadriver.TopicID(r.uuid())),
						"not read, or the commit does not say of which topic it is"
				})
				m.leave()
				assert.Equal(t, row.effects, r.totalEffects())
			})
		})
	}
}

// Where topics cannot be looked up the client joins again: to begin at an offset without a look
// could skip messages.
func TestOffsetsAreNotTrustedWithoutALook(t *testing.T) {
	stamped := kafkadriver.Stamp(kafkadriver.TopicID([16]byte{1}))
	answer := kmsg.NewPtrOffsetFetchResponse()
	answer.Groups = []kmsg.OffsetFetchResponseGroup{{Topics: []kmsg.OffsetFetchResponseGroupTopic{{
		Topic: orders, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 3,
			Offset: 7, Metadata: &stamped}},
	}}}}
	down := errors.New("down")
	var told []error
	b := &begins{
		report: func(err error) { told = append(told, err) },
		uuidsOf: func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
			return nil, down
		},
	}
	require.ErrorIs(t, b.fetched(t.Context(), nil, answer), down)

	b.uuidsOf = func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
		return map[string][16]byte{}, nil
	}
	require.NoError(t, b.fetched(t.Context(), nil, answer))
	assert.Empty(t, b.anew, "nobody knows the topic's UUID")
	assert.Empty(t, told)

	b.uuidsOf = func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
		return map[string][16]byte{orders: {2}}, nil
	}
	require.NoError(t, b.fetched(t.Context(), nil, answer))
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], kafkaadapter.ErrTopicRecreated)
	offsets, err := b.adjust(t.Context(),
		map[string]map[int32]kgo.Offset{orders: {3: kgo.NewOffset().At(7),
			4: kgo.NewOffset().At(9)}})
	require.NoError(t, err)
	assert.Equal(t, map[int32]kgo.Offset{3: kgo.NewOffset().AtStart(), 4: kgo.NewOffset().At(9)},
		offsets[orders])
}
