package kafkasegmentio

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

const (
	orders = "orders"
	group  = "g"
)

// rig is an embedded broker with a topic, a store, and a ledger of effects, for what only this
// driver does.
type rig struct {
	t       *testing.T
	cluster brokers
	store   dedup.Store
	client  *kgo.Client // to produce with

	mu      sync.Mutex
	effects map[string]int
	errs    []error
}

func newRig(t *testing.T, partitions int32) *rig {
	t.Helper()
	r := &rig{t: t, cluster: newBrokers(t), store: dedup.Memory(1 << 20),
		effects: map[string]int{}}
	require.NoError(t, r.cluster.CreateTopic(orders, partitions, nil))
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return r
}

func (r *rig) newClient(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
	require.NoError(r.t, err)
	r.t.Cleanup(cl.Close)
	return cl
}

func record(partition int32, id string) *kgo.Record {
	return &kgo.Record{Topic: orders, Partition: partition, Key: []byte(id), Value: []byte(id),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
}

// produce appends n messages to a partition, numbered from a number on.
func (r *rig) produce(partition int32, from, n int) {
	r.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = record(partition, fmt.Sprintf("evt_%06d", from+i))
	}
	require.NoError(r.t, r.client.ProduceSync(r.t.Context(), records...).FirstErr())
}

func (r *rig) groupErrors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.errs...)
}

// config is a member's, with limits that suit a test.
func (r *rig) config(handle kafkaadapter.Handler) kafkaadapter.Config {
	r.t.Helper()
	d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: 30 * time.Second})
	require.NoError(r.t, err)
	return kafkaadapter.Config{
		Deduper: d,
		Tuning:  kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 300 * time.Millisecond},
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			r.mu.Lock()
			r.effects[m.ID]++
			r.mu.Unlock()
			if handle != nil {
				return handle(ctx, m)
			}
			return nil
		},
		Observer: kafkaadapter.Observer{GroupError: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs = append(r.errs, err)
		}},
	}
}

// run runs a member until a condition holds, and ends it.
func (r *rig) run(cfg kafkaadapter.Config, until func() (bool, string)) {
	r.t.Helper()
	c, err := suiteMember(drivertest.Member{Brokers: r.cluster.ListenAddrs(), Group: group,
		Topics: []string{orders}, Session: 5 * time.Second, Rebalance: 15 * time.Second,
		Config: cfg})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.eventually(until)
	cancel()
	require.NoError(r.t, <-done)
}

// committed is a condition: partition 0 is committed to an offset.
func (r *rig) committed(offset int64) func() (bool, string) {
	return func() (bool, string) {
		to, _ := r.cluster.Committed(group, orders, 0)
		return to == offset, fmt.Sprintf("committed to %d; %v", to, r.groupErrors())
	}
}

// once wants n effects, each of them once.
func (r *rig) once(n int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Len(r.t, r.effects, n, "messages with an effect")
	for id, times := range r.effects {
		assert.Equal(r.t, 1, times, id)
	}
}

// patience is for a busy machine: only a test that fails waits for so long.
const patience = time.Minute

func (r *rig) eventually(cond func() (bool, string)) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		ok, state := cond()
		assert.True(c, ok, state)
	}, patience, 10*time.Millisecond)
}
