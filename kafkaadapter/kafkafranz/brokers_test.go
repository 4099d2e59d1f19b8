package kafkafranz

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

// brokers are embedded ones, as drivertest sees them.
type brokers struct{ *kfake.Cluster }

func newBrokers(t testing.TB) brokers {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2),
		kfake.GroupMinSessionTimeout(200*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{
			"group.consumer.heartbeat.interval.ms": "100",
			"group.consumer.session.timeout.ms":    "10000",
		}))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return brokers{cluster}
}

// use calls f with a client of its own: a client keeps to the UUID of a topic that it knows.
func (b brokers) use(f func(*kgo.Client) error) error {
	versions := kversion.Stable() // a commit from outside the group names its topic
	versions.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.MaxVersions(versions),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	return f(client)
}

// TopicID implements drivertest.Cluster.
func (b brokers) TopicID(topic string) string {
	if info := b.TopicInfo(topic); info != nil {
		return kafkadriver.TopicID(info.TopicID)
	}
	return ""
}

// Produce implements drivertest.Cluster.
func (b brokers) Produce(ctx context.Context, messages ...*kafkaadapter.Message) error {
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: m.Topic, Partition: m.Partition, Key: m.Key,
			Value: m.Value, Timestamp: m.Timestamp}
		for _, h := range m.Headers() {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader(h))
		}
	}
	return b.use(func(c *kgo.Client) error { return c.ProduceSync(ctx, records...).FirstErr() })
}

// Committed implements drivertest.Cluster.
func (b brokers) Committed(group, topic string, partition int32) (int64, string) {
	if info := b.GroupInfo(group); info != nil {
		if commit, ok := info.Commits[topic][partition]; ok {
			return commit.Offset, commit.Metadata
		}
	}
	return -1, ""
}

// Commit implements drivertest.Cluster.
func (b brokers) Commit(ctx context.Context, group, topic string, offset int64,
	metadata string) error {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation = group, -1
	t, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	t.Topic, p.Offset, p.Metadata = topic, offset, &metadata
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	return b.use(func(c *kgo.Client) error {
		answer, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	})
}

// AddPartitions implements drivertest.Cluster.
func (b brokers) AddPartitions(ctx context.Context, topic string, partitions int32) error {
	request, one := kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = topic, partitions
	request.Topics = append(request.Topics, one)
	return b.use(func(c *kgo.Client) error {
		answer, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	})
}

// Members implements drivertest.Cluster.
func (b brokers) Members(group string) (partitions []int, settled bool) {
	info := b.GroupInfo(group)
	if info == nil {
		return nil, false
	}
	for i := range info.Members {
		partitions = append(partitions, info.Members[i].NumAssigned())
	}
	return partitions, info.State == "Stable"
}

// Expel implements drivertest.Cluster.
func (b brokers) Expel(ctx context.Context, group string) error {
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = group
	for _, m := range b.GroupInfo(group).Members {
		if m.NumAssigned() > 0 {
			gone := kmsg.NewLeaveGroupRequestMember()
			gone.MemberID = m.MemberID
			request.Members = append(request.Members, gone)
		}
	}
	return b.use(func(c *kgo.Client) error {
		_, err := request.RequestWith(ctx, c)
		return err
	})
}

// OnCommit implements drivertest.Cluster.
func (b brokers) OnCommit(f func(drivertest.Commit)) {
	b.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		request := r.(*kmsg.OffsetCommitRequest)
		for _, t := range request.Topics {
			for _, p := range t.Partitions {
				f(drivertest.Commit{Group: request.Group, Topic: t.Topic,
					TopicID:   kafkadriver.TopicID(t.TopicID),
					Partition: p.Partition, Offset: p.Offset})
			}
		}
		return nil, nil, false
	})
}

// Fail implements drivertest.Cluster.
func (b brokers) Fail(f drivertest.Failure) drivertest.Fault {
	return b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(f.API)}, Topic: f.Topic,
		TopLevel: f.Topic == "" && f.API != int16(kmsg.OffsetCommit),
		Err:      kerr.TypedErrorForCode(f.Code), Count: f.Count})
}
