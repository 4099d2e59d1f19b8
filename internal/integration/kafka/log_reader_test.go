package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// logReader is the only member of a group, with any driver. It reads a partition while the test
// changes its log.
type logReader struct {
	t            *testing.T
	flavor       string
	brokers      []string
	topic, group string
	store        dedup.Store
	watch        *commitWatch
	change       func(*kafkaadapter.Config)
	handle       kafkaadapter.Handler // before the effect

	mu      sync.Mutex
	effects map[string]int
	skipped map[string]int
	errs    []string
}

func newLogReader(t *testing.T, flavor string, brokers []string, topic string) *logReader {
	t.Helper()
	r := &logReader{t: t, flavor: flavor, brokers: brokers, topic: topic, group: topic + "-group",
		store: dedup.Memory(1 << 16), effects: map[string]int{}, skipped: map[string]int{}}
	r.watch = newCommitWatch(brokers, r.topic, r.group, 1)
	t.Cleanup(r.watch.close)
	return r
}

// start makes the reader read until leave is called.
func (r *logReader) start() (leave func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	r.t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- r.consume(ctx) }()
	return func() {
		r.t.Helper()
		cancel()
		require.NoError(r.t, waitFor(r.t, done, r.topic+" does not leave"), r.topic)
	}
}

func (r *logReader) consume(ctx context.Context) error {
	d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: 30 * time.Second})
	if err != nil {
		return err
	}
	m := &membership{brokers: r.brokers, group: r.group, topics: []string{r.topic},
		session: 6 * time.Second, rebalance: 10 * time.Second}
	cfg := kafkaadapter.Config{Deduper: d,
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			if r.handle != nil {
				if err := r.handle(ctx, m); err != nil {
					return err
				}
			}
			r.note(func() { r.effects[m.ID]++ })
			return nil
		},
		Observer: kafkaadapter.Observer{
			Skipped: func(m *kafkaadapter.Message, _ driver.Cause, _ time.Duration) {
				r.note(func() { r.skipped[m.ID]++ })
			},
			GroupError: func(err error) {
				r.note(func() { r.errs = append(r.errs, err.Error()) })
			},
		},
		Attempts: kafkaadapter.Attempts{RetryBase: 50 * time.Millisecond, RetryMax: time.Second},
		Tuning:   kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
	}
	if r.change != nil {
		r.change(&cfg)
	}
	return faultedFlavors[r.flavor](ctx, m, cfg)
}

func (r *logReader) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// told returns the errors that GroupError got so far.
func (r *logReader) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// missing returns those of the ids that have had no effect.
func (r *logReader) missing(ids []string) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if r.effects[id] == 0 {
			missing = append(missing, id)
		}
	}
	return missing
}

// committed asks for the group's offset.
func (r *logReader) committed() int64 {
	r.watch.look()
	return r.watch.offset(0)
}

// wantHandled waits until the ids have had an effect and the group has committed an offset.
func (r *logReader) wantHandled(limit time.Duration, ids []string, offset int64) {
	r.t.Helper()
	eventually(r.t, limit, func() (bool, string) {
		missing, at := r.missing(ids), int64(-1)
		if r.flavor != "franz-share" {
			at = r.committed()
		}
		return len(missing) == 0 && (at == offset || at == -1), fmt.Sprintf(
			"%s: %d of %d are missing: %v; committed to %d, wanted %d; told: %v", r.topic,
			len(missing), len(ids), first5(missing), at, offset, first5(r.told()))
	})
}

// topicOn makes a topic of one partition on these nodes.
func topicOn(t *testing.T, brokers []string, topic string, nodes []int32,
	config map[string]*string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, adminConfig())
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	require.NoError(t, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: -1,
		ReplicationFactor: -1, ReplicaAssignment: map[int32][]int32{0: nodes},
		ConfigEntries: config}, false))
}

// send sends messages with these ids to the partition, and returns the offset behind them.
func send(t *testing.T, brokers []string, topic string, ids []string) int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordDeliveryTimeout(time.Minute))
	require.NoError(t, err)
	defer client.Close()
	var last int64
	for part := range slices.Chunk(ids, 10) {
		records := make([]*kgo.Record, len(part))
		for i, id := range part {
			records[i] = &kgo.Record{Key: []byte(id), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
		}
		require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
		last = records[len(records)-1].Offset
	}
	return last + 1
}

func idsFrom(from, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = idOf(from + i)
	}
	return ids
}

func first5(found []string) []string { return found[:min(len(found), 5)] }

// pause waits for d. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
