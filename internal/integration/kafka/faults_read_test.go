package kafka_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// readTopic calls each with every message of a topic up to its present end.
func readTopic(t *testing.T, brokers []string, topic string, each func(*sarama.ConsumerMessage)) {
	t.Helper()
	cfg := clientConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadUncommitted
	client, err := sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	consumer, err := sarama.NewConsumerFromClient(client)
	require.NoError(t, err)
	defer func() { _ = consumer.Close() }()
	partitions, err := client.Partitions(topic)
	require.NoError(t, err)
	for _, p := range partitions {
		from, err := client.GetOffset(topic, p, sarama.OffsetOldest)
		require.NoError(t, err)
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		require.NoError(t, err)
		if from == end {
			continue
		}
		log, err := consumer.ConsumePartition(topic, p, from)
		require.NoError(t, err)
		for m := range log.Messages() {
			each(m)
			if m.Offset >= end-1 {
				break
			}
		}
		log.AsyncClose()
	}
}

// readIDs returns the id at every position of a topic.
func readIDs(t *testing.T, brokers []string, topic string) map[int32][]string {
	t.Helper()
	log := map[int32][]string{}
	readTopic(t, brokers, topic, func(m *sarama.ConsumerMessage) {
		require.EqualValues(t, len(log[m.Partition]), m.Offset, "a gap in the log")
		log[m.Partition] = append(log[m.Partition], string(m.Headers[0].Value))
	})
	return log
}

// readCommits returns, by group, every commit of the topics' offsets that a coordinator has written
// into __consumer_offsets.
func readCommits(t *testing.T, brokers []string, topics []string) map[string][]seenCommit {
	t.Helper()
	commits := map[string][]seenCommit{}
	readTopic(t, brokers, "__consumer_offsets", func(m *sarama.ConsumerMessage) {
		key, value := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
		if len(m.Key) < 2 || m.Key[0] != 0 || m.Key[1] > 1 || m.Value == nil {
			return // about the group, or a deleted offset
		}
		require.NoError(t, key.ReadFrom(m.Key))
		require.NoError(t, value.ReadFrom(m.Value))
		if slices.Contains(topics, key.Topic) {
			commits[key.Group] = append(commits[key.Group], seenCommit{key.Partition, value.Offset,
				time.UnixMilli(value.CommitTimestamp)})
		}
	})
	return commits
}

// commitWatch asks for the offsets of a group while the group works.
type commitWatch struct {
	brokers      []string
	topic, group string
	partitions   []int32

	mu    sync.Mutex
	seen  []seenCommit
	last  map[int32]int64
	admin sarama.ClusterAdmin
}

// look asks once. If the broker does not answer, the next look asks again.
func (w *commitWatch) look() {
	if w.admin == nil {
		admin, err := sarama.NewClusterAdmin(w.brokers, clientConfig())
		if err != nil {
			return
		}
		w.admin = admin
	}
	offsets, err := w.admin.ListConsumerGroupOffsets(w.group,
		map[string][]int32{w.topic: w.partitions})
	at := time.Now()
	if err != nil || offsets.Err != sarama.ErrNoError {
		w.close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.partitions {
		b := offsets.GetBlock(w.topic, p)
		if b == nil || b.Err != sarama.ErrNoError || b.Offset < 0 || b.Offset == w.last[p] {
			continue
		}
		w.last[p] = b.Offset
		w.seen = append(w.seen, seenCommit{p, b.Offset, at})
	}
}

func (w *commitWatch) close() {
	if w.admin != nil {
		_ = w.admin.Close()
		w.admin = nil
	}
}

// watch looks until ctx ends.
func (w *commitWatch) watch(ctx context.Context, every time.Duration) {
	defer w.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look()
		case <-ctx.Done():
			return
		}
	}
}

// commits returns the commits that were seen.
func (w *commitWatch) commits() []seenCommit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// offset returns the last offset that was seen of a partition.
func (w *commitWatch) offset(partition int32) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[partition]
}

func newCommitWatch(brokers []string, topic, group string, partitions int32) *commitWatch {
	w := &commitWatch{brokers: brokers, topic: topic, group: group, last: map[int32]int64{}}
	for p := range partitions {
		w.partitions = append(w.partitions, p)
	}
	return w
}

// setGroup sets a configuration of a group. It returns an error if the brokers do not know it.
func setGroup(t *testing.T, brokers []string, group, name, value string) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, answer.Resources, 1)
	return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}
