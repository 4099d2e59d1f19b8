package kafkafranz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// commitAt commits an offset as a consumer does.
func (r *rig) commitAt(partition int32, offset int64) {
	r.t.Helper()
	q := question{client: r.client, ids: map[string][16]byte{},
		leaders: map[kafkadriver.TopicPartition]int32{}}
	require.NoError(r.t, q.describe(r.t.Context(), []string{orders}))
	ask := kmsg.NewPtrOffsetCommitRequest()
	ask.Group = group
	topic, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	topic.Topic, topic.TopicID, p.Partition, p.Offset = orders, q.ids[orders], partition, offset
	topic.Partitions = append(topic.Partitions, p)
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
	require.NoError(r.t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}

func (r *rig) wantLag(what string, want time.Duration) {
	r.t.Helper()
	got, err := Lags(r.t.Context(), r.client, group, orders)
	require.NoError(r.t, err, what)
	require.Len(r.t, got, 1, what)
	if want == 0 {
		assert.Zero(r.t, got[orders], what)
		return
	}
	assert.GreaterOrEqual(r.t, got[orders], want, what)
	assert.LessOrEqual(r.t, got[orders], want+time.Minute, what)
}

// Lags returns the age of the oldest message that the group has not read.
func TestLags(t *testing.T) {
	r := newRig(t, 3)
	r.wantLag("of an empty topic", 0)
	send := func(partition int32, ages ...time.Duration) {
		t.Helper()
		var all []*kgo.Record
		for _, age := range ages {
			all = append(all, &kgo.Record{Topic: orders, Partition: partition, Value: []byte("x"),
				Timestamp: time.Now().Add(-age)})
		}
		require.NoError(t, r.client.ProduceSync(t.Context(), all...).FirstErr())
	}
	send(0, 5*time.Hour, 4*time.Hour, 3*time.Hour) // one batch: the next one is inside it
	send(1, 2*time.Hour)
	r.wantLag("nothing is committed", 5*time.Hour)
	r.commitAt(0, 1)
	r.wantLag("one is read", 4*time.Hour)
	r.commitAt(0, 3)
	r.wantLag("of the partition that is furthest behind", 2*time.Hour)
	r.commitAt(1, 1)
	r.wantLag("all is read", 0)
	r.commitAt(1, 100)
	r.wantLag("committed beyond the end", 0)
	send(2, -time.Hour)
	r.wantLag("from the future", 0)
	r.commitAt(2, 0)
	ask := kmsg.NewPtrDeleteRecordsRequest()
	topic, p := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	send(2, time.Hour)
	topic.Topic, p.Partition, p.Offset = orders, 2, 1
	topic.Partitions = append(topic.Partitions, p)
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(t.Context(), r.client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
	r.wantLag("deleted unread", time.Hour)
}

func TestLagsFails(t *testing.T) {
	r := newRig(t, 1)
	got, err := Lags(t.Context(), r.client, group, orders, "nowhere")
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	assert.Nil(t, got)
	require.NoError(t, r.client.ProduceSync(t.Context(),
		&kgo.Record{Topic: orders, Value: []byte("x")}).FirstErr())
	for name, key := range map[string]int16{"offsets": int16(kmsg.OffsetFetch),
		"ends": int16(kmsg.ListOffsets), "messages": int16(kmsg.Fetch)} {
		r.cluster.ControlKey(key, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			switch req := kreq.(type) {
			case *kmsg.OffsetFetchRequest:
				answer := req.ResponseKind().(*kmsg.OffsetFetchResponse)
				g := kmsg.NewOffsetFetchResponseGroup()
				g.Group, g.ErrorCode = group, kerr.GroupAuthorizationFailed.Code
				answer.Groups = append(answer.Groups, g)
				return answer, nil, true
			case *kmsg.ListOffsetsRequest:
				answer := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				topic, p := kmsg.NewListOffsetsResponseTopic(),
					kmsg.NewListOffsetsResponseTopicPartition()
				topic.Topic, p.ErrorCode = orders, kerr.TopicAuthorizationFailed.Code
				topic.Partitions = append(topic.Partitions, p)
				answer.Topics = append(answer.Topics, topic)
				return answer, nil, true
			case *kmsg.FetchRequest:
				answer := req.ResponseKind().(*kmsg.FetchResponse)
				topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
				topic.Topic, topic.TopicID, p.ErrorCode = req.Topics[0].Topic,
					req.Topics[0].TopicID, kerr.TopicAuthorizationFailed.Code
				topic.Partitions = append(topic.Partitions, p)
				answer.Topics = append(answer.Topics, topic)
				return answer, nil, true
			}
			return nil, nil, false
		})
		got, err := Lags(t.Context(), r.client, group, orders)
		require.ErrorContains(t, err, "AUTHORIZATION_FAILED", name)
		assert.Nil(t, got, name)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	got, err = Lags(ended, r.client, group, orders)
	require.Error(t, err, "with a context that has ended")
	assert.Nil(t, got)
}

func TestLagsRefuses(t *testing.T) {
	_, err := Lags(nil, &kgo.Client{}, group, "x") //nolint:staticcheck // on purpose
	wantInput(t, err, "Context")
	_, err = Lags(t.Context(), nil, group, "x")
	wantInput(t, err, "Client")
	_, err = Lags(t.Context(), &kgo.Client{}, "", "x")
	wantInput(t, err, "Group")
	_, err = Lags(t.Context(), &kgo.Client{}, group)
	wantInput(t, err, "Topics")
}
