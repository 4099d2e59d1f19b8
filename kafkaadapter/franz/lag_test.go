package franz

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/lag"
)

// commitAt is what a consumer's commit leaves.
func (r *rig) commitAt(partition int32, offset int64) {
	r.t.Helper()
	r.early = true // nobody has handled what is committed
	q := question{client: r.client, ids: map[string][16]byte{}, leaders: map[lag.Place]int32{}}
	if err := q.describe(r.t.Context(), []string{orders}); err != nil {
		r.t.Fatal(err)
	}
	ask := kmsg.NewPtrOffsetCommitRequest()
	ask.Group = group
	topic, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	topic.Topic, topic.TopicID, p.Partition, p.Offset = orders, q.ids[orders], partition, offset
	topic.Partitions = append(topic.Partitions, p)
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(r.t.Context(), r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wantLag(what string, want time.Duration) {
	r.t.Helper()
	got, err := Lags(r.t.Context(), r.client, group, orders)
	if off := got[orders] - want; err != nil || len(got) != 1 || off < 0 || off > time.Minute ||
		want == 0 && off != 0 {
		r.t.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// How old is what the group has not read.
func TestLags(t *testing.T) {
	r := newRig(t, cooperative, 3)
	r.wantLag("of an empty topic", 0)
	send := func(partition int32, ages ...time.Duration) {
		t.Helper()
		var all []*kgo.Record
		for _, age := range ages {
			all = append(all, &kgo.Record{Topic: orders, Partition: partition, Value: []byte("x"),
				Timestamp: time.Now().Add(-age)})
		}
		if err := r.client.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	send(0, 5*time.Hour, 4*time.Hour, 3*time.Hour) // one batch: the next message is in its midst
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
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
	r.wantLag("deleted unread", time.Hour)
}

func TestLagsFails(t *testing.T) {
	r := newRig(t, cooperative, 1)
	if got, err := Lags(t.Context(), r.client, group, orders, "nowhere"); !errors.Is(err,
		kerr.UnknownTopicOrPartition) || got != nil {
		t.Errorf("of a topic that there is not: %v, %v", got, err)
	}
	if err := r.client.ProduceSync(t.Context(),
		&kgo.Record{Topic: orders, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
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
		if got, err := Lags(t.Context(), r.client, group, orders); err == nil || got != nil ||
			!strings.Contains(err.Error(), "AUTHORIZATION_FAILED") {
			t.Errorf("%s that may not be asked for: %v, %v", name, got, err)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if got, err := Lags(ended, r.client, group, orders); err == nil || got != nil {
		t.Errorf("with a context that has ended: %v, %v", got, err)
	}
}

func TestLagsRefuses(t *testing.T) {
	var input *dedup.InputError
	for field, ask := range map[string]func() (map[string]time.Duration, error){
		"Context": func() (map[string]time.Duration, error) { return Lags(nil, &kgo.Client{}, "g", "x") }, //nolint:staticcheck // on purpose
		"Client": func() (map[string]time.Duration, error) {
			return Lags(context.Background(), nil, "g", "x")
		},
		"Group": func() (map[string]time.Duration, error) {
			return Lags(context.Background(), &kgo.Client{}, "", "x")
		},
		"Topics": func() (map[string]time.Duration, error) {
			return Lags(context.Background(), &kgo.Client{}, "g")
		},
	} {
		if _, err := ask(); !errors.As(err, &input) || input.Field != field {
			t.Errorf("got %v, want one of %s", err, field)
		}
	}
}
