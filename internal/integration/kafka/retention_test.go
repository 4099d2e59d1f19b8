package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

// deleteBelow moves the start of a log, as retention does.
func deleteBelow(t *testing.T, brokers []string, topic string, offset int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	cut := kmsg.NewDeleteRecordsRequestTopicPartition()
	cut.Offset = offset
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, cut)
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.TimeoutMillis, request.Topics = 5000, append(request.Topics, of)
	answer, err := request.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}

// offsetFlavors are those whose groups have offsets.
var offsetFlavors = []string{"sarama", "franz-classic", "franz-848", "segmentio", "confluent"}

// The start of the log moves past the offset of a reader. Without Allow.Skip, GroupError gets an
// error now and then, and no message is skipped. With it, the drivers of readsOnWithSkip continue
// at the new start.
func TestRetentionUnderAReader(t *testing.T) {
	for _, flavor := range offsetFlavors {
		t.Run(flavor, func(t *testing.T) {
			t.Parallel()
			r := newLogReader(t, flavor, servertest.Kafka(t), servertest.Prefix(t))
			createTopic(t, r.brokers, r.topic, 1, 1)
			leave := r.start()
			send(t, r.brokers, r.topic, idsFrom(0, 10))
			r.wantHandled(20*time.Second, idsFrom(0, 10), 10)
			leave() // a slow reader: its next fetch comes after the restart
			send(t, r.brokers, r.topic, idsFrom(10, 90))
			deleteBelow(t, r.brokers, r.topic, 40)

			leave = r.start()
			eventually(t, 20*time.Second, func() (bool, string) {
				return len(r.told()) > 2, fmt.Sprint("told ", r.told())
			})
			told := len(r.told())
			pause(t.Context(), 3*time.Second)
			assert.Less(t, len(r.told())-told, 30, "a hot loop")
			assert.EqualValues(t, 10, r.committed())
			assert.Len(t, r.missing(idsFrom(10, 90)), 90, "nothing is read until somebody decides")
			leave()

			r.change = func(c *kafkaadapter.Config) { c.Allow.Skip = true }
			leave = r.start()
			if readsOnWithSkip(flavor) {
				r.wantHandled(20*time.Second, idsFrom(40, 60), 100)
				assert.Len(t, r.missing(idsFrom(10, 30)), 30)
			}
			leave()
		})
	}
}

// readsOnWithSkip says whether Allow.Skip alone continues at the new start. The other clients have
// settings of their own for that, which Allow.Skip accepts.
func readsOnWithSkip(flavor string) bool { return flavor == "segmentio" }

// The start of the log moves past the offset of a reader that still handles what it has fetched.
func TestRetentionUnderASlowReader(t *testing.T) {
	for _, flavor := range offsetFlavors {
		t.Run(flavor, func(t *testing.T) {
			t.Parallel()
			r := newLogReader(t, flavor, servertest.Kafka(t), servertest.Prefix(t))
			createTopic(t, r.brokers, r.topic, 1, 1)
			free, begun := make(chan struct{}), make(chan struct{}, 1000)
			r.handle = func(ctx context.Context, _ *kafkaadapter.Message) error {
				begun <- struct{}{}
				select {
				case <-free:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			send(t, r.brokers, r.topic, idsFrom(0, 100))
			defer r.start()() // its first fetch has all of them
			waitFor(t, begun, "nothing is handled")
			deleteBelow(t, r.brokers, r.topic, 100)
			close(free)
			end := send(t, r.brokers, r.topic, idsFrom(100, 50))
			// It handles all that it had fetched. The rest is gone.
			r.wantHandled(20*time.Second, idsFrom(100, 50), end)
			t.Log(len(r.missing(idsFrom(0, 100))), "of 100 were not fetched; told: ", r.told())
		})
	}
}
