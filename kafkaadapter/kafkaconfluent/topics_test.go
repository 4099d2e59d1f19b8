package kafkaconfluent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// replace deletes the topic of orders and creates it again.
func (r *rig) replace() {
	r.t.Helper()
	gone := kmsg.NewPtrDeleteTopicsRequest()
	gone.TopicNames = []string{orders}
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(orders)
	gone.Topics = append(gone.Topics, topic)
	_, err := gone.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
	made := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = orders, 1, 1
	made.Topics = append(made.Topics, one)
	answer, err := made.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
	require.NoError(r.t, kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.log)
	clear(r.last)
}

// The topic is deleted and created again while a handler is at work. The client ends for one
// reason, which is logged once, and another one reads the new topic from its start. Offsets of
// the old one are not committed into it.
func TestTopicRecreated(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 1)
		r.early = true // commits of the topic that is gone, which the oracle does not tell apart
		g := newGateway()
		g.deaf = true
		var mu sync.Mutex
		gone := 0
		m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.ID == "evt_000005" {
				return g.handle(ctx, m)
			}
			return nil
		}, func(c *kafkaadapter.Config) {
			c.Observer.GroupError = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, kafkaadapter.ErrTopicRecreated) {
					gone++
				}
			}
		}, nil)
		r.produce(0, 0, 6)
		<-g.inside
		r.replace()
		close(g.open)
		client := r.client
		// a producer keeps to the topic that it knows
		r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		client.Close()
		r.produce(0, 100, 3) // fewer than before
		r.eventually(func() (bool, string) {
			info := r.cluster.GroupInfo(group)
			return r.totalEffects() == 9 && info != nil && info.Commits[orders][0].Offset == 3,
				"the new topic is not read"
		})
		m.leave()
		r.once(9)
		mu.Lock()
		// Where a commit by name has come into the new topic, that is told whenever the offset is
		// fetched.
		assert.True(t, gone > 0 && gone <= 3, "told %d times", gone)
		mu.Unlock()
	})
}

// commitAs commits an offset as some client of the group has done.
func (r *rig) commitAs(offset int64, metadata string) {
	r.t.Helper()
	client, err := kafka.NewConsumer(&kafka.ConfigMap{"group.id": group,
		"bootstrap.servers": strings.Join(r.cluster.ListenAddrs(), ",")})
	require.NoError(r.t, err)
	defer func() { _ = client.Close() }()
	_, err = client.CommitOffsets([]kafka.TopicPartition{place(orders, 0, offset, metadata)})
	require.NoError(r.t, err)
}

// uuid is that of the topic of orders.
func (r *rig) uuid() string { return kafkadriver.TopicID(r.cluster.TopicInfo(orders).TopicID) }

// A committed offset counts for the topic that it was committed for, and for no other of its name.
func TestOffsetOfAnotherTopicIsNotStartedAt(t *testing.T) {
	for name, row := range map[string]struct {
		metadata func(r *rig) string
		offset   int64
		effects  int
	}{
		"of this topic": {func(r *rig) string { return kafkadriver.Stamp(r.uuid()) }, 4, 2},
		"of one that was deleted": {func(*rig) string {
			return kafkadriver.Stamp(kafkadriver.TopicID([16]byte{1}))
		}, 4, 6},
		"of a foreign client":   {func(*rig) string { return "consumer-1" }, 4, 2},
		"of a log that was cut": {func(*rig) string { return "" }, 9, 6},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, mode mode) {
				r := newRig(t, mode, 1)
				r.early = true // the first commit is not of a member
				r.produce(0, 0, 6)
				r.commitAs(row.offset, row.metadata(r))
				m := r.join(nil, nil, nil)
				r.eventually(func() (bool, string) {
					metadata := r.cluster.GroupInfo(group).Commits[orders][0].Metadata
					return r.totalEffects() == row.effects &&
							metadata == kafkadriver.Stamp(r.uuid()),
						"not read, or the commit does not say of which topic it is"
				})
				m.leave()
				assert.Equal(t, row.effects, r.totalEffects())
			})
		})
	}
}

// A topic that is missing is left out and not created, and read once it is there.
func TestTopicThatIsMissing(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.early = true // the oracle takes the commits of both topics for those of one
	r.produce(0, 0, 3)
	const later = "later"
	cfg := r.config(r.store, nil)
	told := make(chan error, 100)
	cfg.Observer.GroupError = func(err error) { told <- err }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Consume(ctx, r.cluster.ListenAddrs(), group, []string{orders, later},
			r.properties(nil), cfg)
	}()
	require.ErrorContains(t, <-told, "is left out until it exists")
	r.eventually(func() (bool, string) { return r.totalEffects() == 3, "orders are not read" })
	require.Nil(t, r.cluster.TopicInfo(later), "it was created")
	require.NoError(t, r.cluster.CreateTopic(later, 1, nil))
	r.send(&kgo.Record{Topic: later, Headers: []kgo.RecordHeader{{Key: "message-id",
		Value: []byte("evt_later")}}})
	r.eventually(func() (bool, string) { return r.totalEffects() == 4, "it is not read" })
	stop()
	require.NoError(t, <-done)
	r.once(4)
}
