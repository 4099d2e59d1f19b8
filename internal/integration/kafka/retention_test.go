package kafka_test

import (
	"context"
	"fmt"
	"strings"
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

// The start of the log moves past the offset of a reader. Without Allow.Skip it is told, now and
// then, and no message is skipped; with it the reader continues at the new start.
func TestRetentionUnderAReader(t *testing.T) {
	for _, flavor := range offsetFlavors {
		t.Run(flavor, func(t *testing.T) {
			t.Parallel()
			r := newLogReader(t, flavor, servertest.Kafka(t), servertest.Prefix(t))
			createTopic(t, r.brokers, r.topic, 1, 1)
			leave := r.start()
			send(t, r.brokers, r.topic, idsFrom(0, 10))
			r.wantHandled(20*time.Second, idsFrom(0, 10), 10)
			leave() // it is slow: this is its next fetch
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
			defer r.start()()
			send(t, r.brokers, r.topic, idsFrom(0, 100))
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

// A compacted log loses most of what a reader has not fetched, so that some batches are empty:
// the reader passes them, and commits to the end.
func TestCompactionUnderAReader(t *testing.T) {
	server := servertest.Private(t, servertest.KindKafka1)
	var readers []*logReader
	const versions, keys = 60, 5
	release := make(chan struct{})
	for _, flavor := range offsetFlavors {
		r := newLogReader(t, flavor, server.Addrs, "compacted-"+flavor)
		compactedTopic(t, r.brokers, r.topic)
		r.handle = func(ctx context.Context, m *kafkaadapter.Message) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		r.change = func(c *kafkaadapter.Config) { c.Tuning.HighWater = 20 }
		sendVersions(t, r, versions, keys)
		readers = append(readers, r)
	}
	for _, r := range readers {
		defer r.start()()
	}
	for _, r := range readers {
		eventually(t, 60*time.Second, func() (bool, string) {
			n := len(remaining(t, r))
			return n < versions*keys/2, fmt.Sprint(r.topic, ": ", n, " messages are left")
		})
	}
	close(release)
	for _, r := range readers {
		left := remaining(t, r)
		r.wantHandled(30*time.Second, left, versions*keys+1)
		t.Logf("%s: %d of %d messages were left, told %v", r.topic, len(left), versions*keys+1,
			first5(r.told()))
	}
}

func compactedTopic(t *testing.T, brokers []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	of := kmsg.NewCreateTopicsRequestTopic()
	of.Topic, of.NumPartitions, of.ReplicationFactor = topic, 1, 1
	for name, value := range map[string]string{"cleanup.policy": "compact",
		"min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000", "delete.retention.ms": "0",
		"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1000"} {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		of.Configs = append(of.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, of)
	answer, err := request.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(answer.Topics[0].ErrorCode))
}

// sendVersions sends versions of a few keys, whose last ones are tombstones, and then, in a segment
// of its own, one message more: the segment before it can be compacted.
func sendVersions(t *testing.T, r *logReader, versions, keys int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.DefaultProduceTopic(r.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	message := func(key, id string, value []byte) *kgo.Record {
		return &kgo.Record{Key: []byte(key), Value: value,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
	}
	for v := range versions {
		var batch []*kgo.Record
		for k := range keys {
			value := []byte(strings.Repeat("x", 100))
			if v == versions-1 {
				value = nil
			}
			batch = append(batch, message(fmt.Sprint("k", k), idOf(v*keys+k), value))
		}
		require.NoError(t, client.ProduceSync(t.Context(), batch...).FirstErr())
	}
	pause(t.Context(), 1500*time.Millisecond) // by which time the broker rolls
	require.NoError(t, client.ProduceSync(t.Context(),
		message("last", "last", []byte("x"))).FirstErr())
}

// remaining are the ids in the log of a reader.
func remaining(t *testing.T, r *logReader) (ids []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			r.topic: {0: kgo.NewOffset().AtStart()}}), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	for len(ids) == 0 || ids[len(ids)-1] != "last" {
		for _, m := range client.PollFetches(t.Context()).Records() {
			ids = append(ids, string(m.Headers[0].Value))
		}
	}
	return ids
}
