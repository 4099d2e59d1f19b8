package kafkaadapter

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

// fakeAdmin answers about topics of one partition, and about one group.
type fakeAdmin struct {
	sarama.ClusterAdmin
	configs map[string]map[string]string
	failed  error         // of the next question
	code    sarama.KError // of every topic's configuration
	// Of partition 0 of every topic: the ends of its log, the first offset in the window,
	// and what the group has committed. -1 for none.
	oldest, newest, recent, committed int64
	block                             sarama.KError
	listed                            error     // with an offset
	unknown                           bool      // the group
	since                             time.Time // of the first offset in the window
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
		offset := f.recent
		switch ms := partitions[0]; ms {
		case sarama.OffsetOldest:
			offset = f.oldest
		case sarama.OffsetNewest:
			offset = f.newest
		default:
			f.since = time.UnixMilli(ms)
		}
		all[topic] = map[int32]*sarama.OffsetResult{0: {Offset: offset, Err: f.listed}}
	}
	return all, nil
}

func TestCheckWindowRetention(t *testing.T) {
	const window = 8 * 24 * time.Hour
	day := func(n int) string { return strconv.Itoa(n * 24 * 3600 * 1000) }
	for _, c := range []struct {
		name              string
		retention, policy string
		want              time.Duration // 0: it is not longer
	}{
		{"shorter", day(7), "delete", 0},
		{"as long", day(8), "delete", 0},
		{"longer", day(9), "delete", 9 * 24 * time.Hour},
		{"a millisecond longer", "691200001", "delete", window + time.Millisecond},
		{"without limit", "-1", "delete", -1},
		{"longer than a Duration", "9223372036854775807", "delete", -1},
		{"compacted", day(1), "compact", -1},
		{"compacted and deleted", day(1), "compact,delete", 0},
		{"neither", day(1), "", -1},
		{"zero", "0", "delete", 0},
	} {
		f := &fakeAdmin{configs: map[string]map[string]string{"a": {"retention.ms": c.retention,
			"cleanup.policy": c.policy}, "b": {"retention.ms": day(1)}}}
		got, err := CheckWindow(f, window, "", "a", "b")
		if err != nil || len(got) > 1 || (len(got) > 0) != (c.want != 0) {
			t.Errorf("%s: %v, %v", c.name, got, err)
			continue
		}
		if len(got) > 0 && (got[0].Topic != "a" || got[0].Retention != c.want ||
			got[0].Window != window || got[0].Lagging != nil) {
			t.Errorf("%s: %+v, want %v", c.name, got[0], c.want)
		}
	}
}

func TestCheckWindowLag(t *testing.T) {
	for _, c := range []struct {
		name                              string
		oldest, newest, recent, committed int64
		want                              bool
	}{
		{"at the end", 10, 100, 50, 100, false},
		{"in the window", 10, 100, 50, 60, false},
		{"at its edge", 10, 100, 50, 50, false},
		{"before it", 10, 100, 50, 49, true},
		{"nothing is committed", 10, 100, 50, -1, true},
		{"nothing is committed, all is recent", 10, 100, 10, -1, false},
		{"committed below the log, all is recent", 10, 100, 10, 5, false},
		{"nothing is recent, and all is read", 10, 100, -1, 100, false},
		{"nothing is recent, and something is not read", 10, 100, -1, 99, true},
		{"empty", 10, 10, -1, -1, false},
	} {
		f := &fakeAdmin{configs: map[string]map[string]string{"a": {"retention.ms": "1"}},
			oldest: c.oldest, newest: c.newest, recent: c.recent, committed: c.committed}
		got, err := CheckWindow(f, time.Hour, "g", "a")
		if err != nil || (len(got) > 0) != c.want ||
			c.want && (!slices.Equal(got[0].Lagging, []int32{0}) || got[0].Retention != 0) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if age := time.Since(f.since); age < time.Hour || age > time.Hour+time.Minute {
			t.Errorf("%s: asked for the first offset of %v ago", c.name, age)
		}
		f.listed = sarama.ErrNoError // as sarama does
		if c.committed < 0 {
			f.unknown = true
		}
		if again, err := CheckWindow(f, time.Hour, "g", "a"); err != nil || len(again) != len(got) {
			t.Errorf("%s, again: %v, %v", c.name, again, err)
		}
		if again, err := CheckWindow(f, time.Hour, "", "a"); err != nil || again != nil {
			t.Errorf("%s, without a group: %v, %v", c.name, again, err)
		}
	}
}

func TestWindowErrorSaysWhy(t *testing.T) {
	for want, e := range map[string]*WindowError{
		`kept for 1h0m0s, and topic "a" keeps messages for 2h0m0s`:                                                                  {Topic: "a", Window: time.Hour, Retention: 2 * time.Hour},
		`kept for 1h0m0s, and topic "a" keeps messages without limit, and has older ones that are not read in the partitions [1 3]`: {Topic: "a", Window: time.Hour, Retention: -1, Lagging: []int32{1, 3}},
		`and topic "a" has older ones that are not read in the partitions [1]`:                                                      {Topic: "a", Window: time.Hour, Lagging: []int32{1}},
	} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q, want %q", e, want)
		}
	}
}

func TestCheckWindowFails(t *testing.T) {
	good := map[string]map[string]string{"a": {"retention.ms": "1"}}
	for _, c := range []struct {
		name   string
		admin  sarama.ClusterAdmin
		window time.Duration
		topics []string
		want   string
	}{
		{"no admin", nil, time.Hour, []string{"a"}, "Admin is nil"},
		{"no topics", &fakeAdmin{configs: good}, time.Hour, nil, "Topics is empty"},
		{"no window", &fakeAdmin{configs: good}, 0, []string{"a"}, "Window is 0s"},
		{"brokers that are down", &fakeAdmin{configs: good, failed: sarama.ErrOutOfBrokers},
			time.Hour, []string{"a"}, "run out of available brokers"},
		{"not allowed", &fakeAdmin{configs: good, code: sarama.ErrTopicAuthorizationFailed},
			time.Hour, []string{"a"},
			`topic "a" cannot be asked for: kafka server: The client is not`},
		{"not answered", &fakeAdmin{configs: good}, time.Hour, []string{"a", "b"},
			`"b" was not answered`},
		{"no retention", &fakeAdmin{configs: map[string]map[string]string{"a": {}}}, time.Hour,
			[]string{"a"}, `"a": retention.ms is ""`},
		{"a partition without a leader",
			&fakeAdmin{configs: good, listed: sarama.ErrLeaderNotAvailable}, time.Hour,
			[]string{"a"}, "offsets of a/0 cannot"},
		{"an offset that is not known", &fakeAdmin{configs: good,
			block: sarama.ErrGroupAuthorizationFailed}, time.Hour, []string{"a"},
			`group "g" in a/0`},
	} {
		got, err := CheckWindow(c.admin, c.window, "g", c.topics...)
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", c.name, got, err, c.want)
		}
		var input *dedup.InputError
		if errors.As(err, &input) != strings.HasPrefix(c.name, "no ") && c.name != "no retention" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRetentions(t *testing.T) {
	admin := &fakeAdmin{configs: map[string]map[string]string{
		"day":       {"retention.ms": "86400000", "cleanup.policy": "delete"},
		"compacted": {"retention.ms": "1000", "cleanup.policy": "compact"},
	}}
	got, err := Retentions(admin, "day", "compacted")
	if err != nil || got["day"] != 24*time.Hour || got["compacted"] >= 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Retentions(admin, "day", "nowhere"); err == nil {
		t.Error("a topic that was not answered is no error")
	}
	var input *dedup.InputError
	if _, err := Retentions(nil, "day"); !errors.As(err, &input) {
		t.Errorf("no admin: %v", err)
	}
	if _, err := Retentions(admin); !errors.As(err, &input) {
		t.Errorf("no topics: %v", err)
	}
}
