//go:build long

package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

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

// sendVersions sends versions of a few keys. The last version of each is a tombstone. Then it sends
// one more message into a new segment, so that the broker can compact the segment before it.
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
	pause(t.Context(), 1500*time.Millisecond) // longer than segment.ms: the next begins a segment
	require.NoError(t, client.ProduceSync(t.Context(),
		message("last", "last", []byte("x"))).FirstErr())
}

// remaining returns the ids that are still in the log of a reader.
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
