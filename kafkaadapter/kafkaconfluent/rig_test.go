package kafkaconfluent

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
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

	mu      sync.Mutex
	sent    map[int32]int64
	effects map[string]int
}

func newRig(t *testing.T, partitions int32) *rig {
	t.Helper()
	r := &rig{t: t, cluster: newBrokers(t), store: dedup.Memory(1 << 20),
		sent: map[int32]int64{}, effects: map[string]int{}}
	require.NoError(t, r.cluster.CreateTopic(orders, partitions, nil))
	return r
}

// produce appends n messages to a partition, numbered from a number on.
func (r *rig) produce(partition int32, from, n int) {
	r.t.Helper()
	all := make([]*kafkaadapter.Message, n)
	for i := range all {
		id := fmt.Appendf(nil, "evt_%06d", from+i)
		all[i] = &kafkaadapter.Message{Topic: orders, Partition: partition, Key: id, Value: id}
		all[i].SetHeaders(kafkaadapter.Headers{{Key: "message-id", Value: id}})
	}
	require.NoError(r.t, r.cluster.Produce(r.t.Context(), all...))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[partition] += int64(n)
}

func (r *rig) totalEffects() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.effects)
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
			if handle != nil {
				if err := handle(ctx, m); err != nil {
					return err
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.effects[m.ID]++
			return nil
		},
	}
}

// properties are those of a member's client.
func (r *rig) properties(more kafka.ConfigMap) kafka.ConfigMap {
	all := kafka.ConfigMap{"bootstrap.servers": strings.Join(r.cluster.ListenAddrs(), ","),
		"max.poll.interval.ms": 60000, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
	maps.Copy(all, more)
	return all
}

// join starts a member, which leave ends.
func (r *rig) join(cfg kafkaadapter.Config, more kafka.ConfigMap) (leave func()) {
	r.t.Helper()
	c, err := New(group, cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, r.properties(more), []string{orders}) }()
	r.t.Cleanup(cancel)
	return func() {
		r.t.Helper()
		cancel()
		require.NoError(r.t, <-done, "Run")
	}
}

// committed waits until everything is committed.
func (r *rig) committed() {
	r.t.Helper()
	r.eventually(func() (bool, string) {
		r.mu.Lock()
		sent := maps.Clone(r.sent)
		r.mu.Unlock()
		for p, n := range sent {
			if to, _ := r.cluster.Committed(group, orders, p); to != n {
				return false, fmt.Sprintf("partition %d is committed to %d of %d", p, to, n)
			}
		}
		return true, ""
	})
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

func (r *rig) eventually(cond func() (bool, string)) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		ok, state := cond()
		assert.True(c, ok, state)
	}, time.Minute, 10*time.Millisecond)
}
