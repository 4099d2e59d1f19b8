package kafkaconfluent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

var errBroken = errors.New("broken")

// Everything is handled once and committed, and a member that leaves gives nothing back late.
func TestOneMember(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 3)
		for p := range int32(3) {
			r.produce(p, int(p)*1000, 500)
		}
		m := r.join(nil, nil, nil)
		r.committed()
		m.leave()
		r.once(1500)
		again := r.join(nil, nil, nil)
		r.produce(0, 5000, 10)
		r.committed()
		again.leave()
		r.once(1510)
	})
}

// Consume is New and Run.
func TestConsume(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 5)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg := r.config(r.store, nil)
	brokers := r.cluster.ListenAddrs()
	go func() { done <- Consume(ctx, brokers, group, []string{orders}, r.mode.config, cfg) }()
	r.committed()
	stop()
	require.NoError(t, <-done)
	r.once(5)
	wantInput(t, Consume(t.Context(), brokers, "", []string{orders}, nil, cfg), "group")
}

// A batch handler gets what may run, answers for each, and the one that fails is run again.
func TestBatchHandler(t *testing.T) {
	r := newRig(t, cooperative, 2)
	r.produce(0, 0, 500)
	r.produce(1, 500, 500)
	var mu sync.Mutex
	largest, failed := 0, false
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Handler = nil
		c.BatchHandler = func(_ context.Context, ms []*kafkaadapter.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, len(ms))
			errs := make([]error, len(ms))
			for i, m := range ms {
				if m.ID == "evt_000123" && !failed {
					failed, errs[i] = true, errBroken
					continue
				}
				r.affect(m)
			}
			return errs
		}
	}, nil)
	r.committed()
	m.leave()
	r.once(1000)
	assert.GreaterOrEqual(t, largest, 2, "messages in the largest batch")
	assert.True(t, failed)
}

// A message that can never be processed stops the consumer without Park, and stays.
func TestUnprocessable(t *testing.T) {
	for _, row := range []struct {
		name   string
		record *kgo.Record
		err    error
	}{
		{"permanent", &kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id",
			Value: []byte("bad")}}}, errBroken},
		{"no id", &kgo.Record{Value: []byte("x")}, kafkaadapter.ErrNoID},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, cooperative, 1)
			r.produce(0, 0, 5)
			row.record.Topic = orders
			r.send(row.record)
			m := r.join(func(_ context.Context, m *kafkaadapter.Message) error {
				if m.ID == "bad" {
					return dedup.Permanent(errBroken)
				}
				return nil
			}, nil, nil)
			err := m.wait()
			var message *kafkaadapter.UnprocessableError
			require.ErrorAs(t, err, &message)
			require.ErrorIs(t, err, row.err)
			assert.Equal(t, orders, message.Topic)
			assert.EqualValues(t, 5, message.Offset)
			r.eventually(func() (bool, string) {
				at := r.cluster.GroupInfo(group).Commits[orders][0].Offset
				return at == 5, fmt.Sprint("committed to ", at)
			})
		})
	}
}

// Too much in flight pauses a partition, and others go on; Progress says so.
func TestPause(t *testing.T) {
	r := newRig(t, cooperative, 2)
	g := newGateway()
	paused := make(chan bool, 100)
	m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Partition == 0 {
			return g.handle(ctx, m)
		}
		return nil
	}, func(c *kafkaadapter.Config) {
		c.Tuning.HighWater, c.Tuning.LowWater, c.Tuning.Workers = 100, 50, 4
		c.Observer.Paused = func(_ string, p int32, on bool) {
			if p == 0 {
				paused <- on
			}
		}
	}, kafka.ConfigMap{"fetch.message.max.bytes": 4 << 10})
	for i := range 20 { // batches that are small against what may be in flight
		r.produce(0, 50*i, 50)
		r.produce(1, 1000+50*i, 50)
	}
	assert.True(t, <-paused, "resumed first")
	r.eventually(func() (bool, string) {
		return r.totalEffects() == 1000, "the other partition does not go on"
	})
	all := m.consumer.Progress()
	require.Len(t, all, 2)
	assert.True(t, all[0].Backlogged)
	assert.Zero(t, all[0].Oldest)
	assert.GreaterOrEqual(t, all[0].InFlight, 100)
	assert.Less(t, all[0].InFlight, 1000)
	close(g.open)
	r.committed()
	assert.False(t, <-paused, "paused twice")
	all = m.consumer.Progress()
	require.Len(t, all, 2)
	assert.Zero(t, all[0].Lag)
	assert.EqualValues(t, 1000, all[0].Watermark)
	m.leave()
	assert.Empty(t, m.consumer.Progress(), "after Run")
	r.once(2000)
}

// A hook may ask for Progress while partitions come and are committed.
func TestProgressInHooks(t *testing.T) {
	r := newRig(t, cooperative, 4)
	for p := range int32(4) {
		r.produce(p, int(p)*10, 10)
	}
	var consumer atomic.Pointer[Consumer]
	ask := func() {
		if c := consumer.Load(); c != nil {
			c.Progress()
		}
	}
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Observer.Assigned = func(string, int32, int32) { r.note("assigned"); ask() }
		c.Observer.Committing = func(string, int32, int64) { ask() }
		c.Observer.Committed = func(string, int32, int64) { ask() }
		c.Observer.Revoked = func(string, int32, int, int) { ask() }
	}, nil)
	consumer.Store(m.consumer)
	r.committed()
	other := r.join(nil, nil, nil)
	r.members(2)
	other.leave()
	r.eventually(func() (bool, string) {
		return r.noted("assigned") >= 6, "the partitions have not come back"
	})
	m.leave()
	r.once(40)
}

// The effects and their records have landed, and no commit: it is as after a crash. The next member
// skips the messages, in whatever generation.
func TestRecordedButNotCommitted(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		refused := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit},
			Err: kerr.UnknownServerError, Count: 1000000})
		r.produce(0, 0, 20)
		r.produce(1, 20, 20)
		m := r.join(nil, nil, nil)
		r.eventually(func() (bool, string) { return r.totalEffects() == 40, "not handled" })
		m.leave()
		assert.Zero(t, r.noted("skipped"))
		refused.Remove()
		m = r.join(nil, nil, nil)
		r.committed()
		m.leave()
		r.once(40)
		assert.Equal(t, 40, r.noted("skipped"))
	})
}
