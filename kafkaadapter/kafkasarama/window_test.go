package kafkasarama

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// fakeAdmin answers about topics of one partition, and about one group.
type fakeAdmin struct {
	sarama.ClusterAdmin
	configs map[string]map[string]string
	failed  error         // of the next question
	code    sarama.KError // of every topic's configuration
	// Of partition 0 of every topic: the ends of its log, and what the group has committed, -1
	// for nothing.
	oldest, newest, committed int64
	block                     sarama.KError
	listed                    error // with an offset
	unknown                   bool  // the group
}

// DescribeConfigs implements sarama.ClusterAdmin.
func (f *fakeAdmin) DescribeConfigs(asked []*sarama.ConfigResource,
	_ sarama.DescribeConfigsOptions) ([]*sarama.ConfigResourceResult, error) {
	var all []*sarama.ConfigResourceResult
	for _, r := range asked {
		config, ok := f.configs[r.Name]
		if !ok {
			continue
		}
		result := &sarama.ConfigResourceResult{Type: r.Type, Name: r.Name, ErrorCode: f.code}
		for _, name := range slices.Sorted(maps.Keys(config)) {
			result.Configs = append(result.Configs,
				sarama.ConfigEntry{Name: name, Value: config[name]})
		}
		all = append(all, result)
	}
	return all, f.failed
}

// DescribeTopics implements sarama.ClusterAdmin.
func (f *fakeAdmin) DescribeTopics(topics []string) ([]*sarama.TopicMetadata, error) {
	var all []*sarama.TopicMetadata
	for _, topic := range topics {
		all = append(all, &sarama.TopicMetadata{Name: topic,
			Partitions: []*sarama.PartitionMetadata{{ID: 0}}})
	}
	return all, nil
}

// ListConsumerGroupOffsets implements sarama.ClusterAdmin.
func (f *fakeAdmin) ListConsumerGroupOffsets(_ string,
	partitions map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	if f.unknown {
		return nil, sarama.ErrGroupIDNotFound
	}
	response := &sarama.OffsetFetchResponse{}
	for topic := range partitions {
		response.AddBlock(topic, 0,
			&sarama.OffsetFetchResponseBlock{Offset: f.committed, Err: f.block})
	}
	return response, nil
}

// ListOffsets implements sarama.ClusterAdmin.
func (f *fakeAdmin) ListOffsets(asked map[string]map[int32]int64,
	_ *sarama.ListOffsetsOptions) (map[string]map[int32]*sarama.OffsetResult, error) {
	all := map[string]map[int32]*sarama.OffsetResult{}
	for topic, partitions := range asked {
		offset := f.newest
		if partitions[0] == sarama.OffsetOldest {
			offset = f.oldest
		}
		all[topic] = map[int32]*sarama.OffsetResult{0: {Offset: offset, Err: f.listed}}
	}
	return all, nil
}

func TestRetentions(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name, retention, policy string
		want                    time.Duration // negative: without limit
	}{
		{"a week", "604800000", "delete", 7 * day},
		{"a millisecond more", "604800001", "delete", 7*day + time.Millisecond},
		{"without limit", "-1", "delete", -1},
		{"longer than a Duration", "9223372036854775807", "delete", -1},
		{"compacted", "86400000", "compact", -1},
		{"compacted and deleted", "86400000", "compact,delete", day},
		{"neither", "86400000", "", -1},
		{"zero", "0", "delete", 0},
	} {
		f := &fakeAdmin{configs: map[string]map[string]string{"a": {"retention.ms": c.retention,
			"cleanup.policy": c.policy}, "b": {"retention.ms": "86400000"}}}
		got, err := Retentions(f, "a", "b")
		require.NoError(t, err, c.name)
		assert.Equal(t, map[string]time.Duration{"a": c.want, "b": day}, got, c.name)
	}
}

func TestRetentionsFails(t *testing.T) {
	good := map[string]map[string]string{"a": {"retention.ms": "1"}}
	for _, c := range []struct {
		name   string
		admin  sarama.ClusterAdmin
		topics []string
		want   string
	}{
		{"no admin", nil, []string{"a"}, "Admin is nil"},
		{"no topics", &fakeAdmin{configs: good}, nil, "Topics is empty"},
		{"brokers that are down", &fakeAdmin{configs: good, failed: sarama.ErrOutOfBrokers},
			[]string{"a"}, "run out of available brokers"},
		{"not allowed", &fakeAdmin{configs: good, code: sarama.ErrTopicAuthorizationFailed},
			[]string{"a"}, `topic "a" cannot be asked for: kafka server: The client is not`},
		{"not answered", &fakeAdmin{configs: good}, []string{"a", "b"}, `"b" was not answered`},
		{"without a retention", &fakeAdmin{configs: map[string]map[string]string{"a": {}}},
			[]string{"a"}, `"a": retention.ms is ""`},
	} {
		got, err := Retentions(c.admin, c.topics...)
		require.ErrorContains(t, err, c.want, c.name)
		assert.Nil(t, got, c.name)
		var input *dedup.InputError
		assert.Equal(t, strings.HasPrefix(c.name, "no "), errors.As(err, &input), c.name)
	}
}

// Where a group has committed nothing, the whole log is unread.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		name                      string
		oldest, newest, committed int64
		next                      int64
	}{
		{"at the end", 10, 100, 100, 100},
		{"in the midst", 10, 100, 60, 60},
		{"nothing is committed", 10, 100, -1, 10},
		{"committed below the log", 10, 100, 5, 10},
		{"empty", 10, 10, -1, 10},
	} {
		f := &fakeAdmin{oldest: c.oldest, newest: c.newest, committed: c.committed}
		want := map[kafkadriver.TopicPartition]kafkadriver.Span{
			{Topic: "a"}: {Next: c.next, End: c.newest}}
		got, err := unreadBy(f, "g", []string{"a"})
		require.NoError(t, err, c.name)
		assert.Equal(t, want, got, c.name)
		f.listed = sarama.ErrNoError // as sarama does
		f.unknown = c.committed < 0  // a group that has never run
		got, err = unreadBy(f, "g", []string{"a"})
		require.NoError(t, err, c.name)
		assert.Equal(t, want, got, c.name)
	}
	for want, f := range map[string]*fakeAdmin{
		"offsets of a/0 cannot": {listed: sarama.ErrLeaderNotAvailable},
		`group "g" in a/0`:      {block: sarama.ErrGroupAuthorizationFailed},
	} {
		_, err := unreadBy(f, "g", []string{"a"})
		assert.ErrorContains(t, err, want)
	}
}
