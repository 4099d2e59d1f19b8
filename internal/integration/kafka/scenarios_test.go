package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// counter counts the handlers that have entered.
type counter struct {
	mu     sync.Mutex
	n      int
	change chan struct{} // closed when the next one enters
}

// waitFor enters, and waits until n have entered.
func (c *counter) waitFor(ctx context.Context, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.change != nil {
		close(c.change)
		c.change = nil
	}
	for c.n < n {
		if c.change == nil {
			c.change = make(chan struct{})
		}
		change := c.change
		c.mu.Unlock()
		select {
		case <-change:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// transact produces the records in a transaction.
func transact(t *testing.T, brokers []string, records []record, commit bool) {
	t.Helper()
	cfg := clientConfig()
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID, cfg.Net.MaxOpenRequests = true, "tx", 1
	p, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	require.NoError(t, p.BeginTxn())
	for _, r := range records {
		_, _, err := p.SendMessage(r.message(sceneTopic))
		require.NoError(t, err)
	}
	end := p.AbortTxn
	if commit {
		end = p.CommitTxn
	}
	require.NoError(t, end())
}

// One key is stuck: the others go on, the watermark stays below it, and what is in
// flight above it is bounded.
func TestOneStuckKey(t *testing.T) { eachFlavor(t, oneStuckKey) }

func oneStuckKey(t *testing.T, f flavor) {
	const n = 6000
	s := f.scene(t, 3, 1).nobodyDies()
	stuck := make(chan struct{})
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID == idOf(100) {
			select {
			case <-stuck:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	records := numbered(0, 0, n)
	for i := range records {
		records[i].value = make([]byte, 500)
	}
	for i := 0; i < n; i += 100 { // batches that are small against what may be in flight
		s.produce(records[i : i+100]...)
	}
	m := s.join(handler, func(mc *memberConfig) {
		mc.Tuning.HighWater, mc.Tuning.LowWater, mc.fetch = 500, 200, 16<<10
	})
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.committed(0) == 100, fmt.Sprint("committed ", s.committed(0))
	})
	eventually(t, 10*time.Second, func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.paused > 0, "not paused"
	})
	settled := settle(t, func() int64 { return int64(s.totalEffects()) })
	assert.GreaterOrEqual(t, settled, int64(500), "handled next to the stuck one; HighWater is 500")
	assert.LessOrEqual(t, settled, int64(1500), "handled next to the stuck one; HighWater is 500")
	assert.Equal(t, int64(100), s.committed(0), "the stuck message is at 100")
	close(stuck)
	s.wantAll(15*time.Second, m)
}

// settle waits until a number has not changed for a while, and returns it.
func settle(t *testing.T, read func() int64) int64 {
	t.Helper()
	last, since := read(), time.Now()
	eventually(t, 15*time.Second, func() (bool, string) {
		if now := read(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond, fmt.Sprint("still changing: ", last)
	})
	return last
}

// A slow partition does not hold up a fast one of the same broker. The client here waits a minute
// for a consumer that takes no messages, so the test would notice if the fast one had to wait.
func TestSlowPartitionBesideAFastOne(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		const n = 8_000
		s := f.scene(t, 1, 2).nobodyDies()
		s.produce(numbered(0, 0, 5_000)...)
		s.produce(numbered(1, 100_000, n)...)
		var slow, fast atomic.Int64
		ended := make(chan struct{})
		m := s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.Partition == 0 {
				slow.Add(1)
				return backoff.Sleep(ctx, 20*time.Millisecond)
			}
			if fast.Add(1) == n {
				close(ended)
			}
			return nil
		}, func(mc *memberConfig) {
			mc.Tuning.Workers, mc.fetch = 1, 16<<10
			mc.Tuning.HighWater, mc.Tuning.LowWater = 200, 100
			mc.client = func(c *sarama.Config) { c.Consumer.MaxProcessingTime = time.Minute }
		})
		waitFor(t, ended, "the fast partition does not end")
		assert.Less(t, slow.Load(), int64(500), "messages of the slow one meanwhile")
		m.crash() // the slow partition has work for minutes
	})
}

// A member that is told to end while it works finishes what runs, commits it, gives the
// rest back, and leaves nothing running.
func TestShutdown(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		s := f.scene(t, 3, 2).nobodyDies()
		s.produce(numbered(0, 0, 500)...)
		s.produce(numbered(1, 500, 500)...)
		handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
			return backoff.Sleep(ctx, 100*time.Millisecond)
		}
		m := s.join(handler, func(mc *memberConfig) { mc.Tuning.Workers = 4 })
		eventually(t, 10*time.Second, func() (bool, string) {
			return s.totalEffects() > 20 && m.running.Load() > 0, "no progress"
		})
		began := time.Now()
		m.leave(t)
		assert.LessOrEqual(t, time.Since(began), 10*time.Second, "all the work would take 25 s")
		assert.NoError(t, m.close(), "the second Close")
		assert.Zero(t, m.running.Load(), "handlers that are still running")
		done := s.totalEffects()
		at := s.committed(0) + s.committed(1)
		assert.Positive(t, at, "what is committed")
		assert.LessOrEqual(t, at, int64(done), "committed beyond the effects")
		s.want("claims left", s.held())
		wantNoGoroutines(t)

		again := s.join(nil)
		s.wantAll(10*time.Second, again)
	})
}

// Closing the group under the consumer ends Run with sarama's error, after the drain.
func TestGroupClosedWhileDraining(t *testing.T) { eachFlavor(t, groupClosedWhileDraining) }

func groupClosedWhileDraining(t *testing.T, f flavor) {
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, 10)...)
	closing := make(chan struct{})
	m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
		<-closing
		return backoff.Sleep(ctx, 500*time.Millisecond)
	}, func(mc *memberConfig) { mc.Tuning.Drain, mc.rebalance = 30*time.Second, time.Minute })
	eventually(t, 10*time.Second, func() (bool, string) {
		return m.running.Load() == 10, fmt.Sprint(m.running.Load(), " run")
	})
	close(closing)
	closed := make(chan error, 2)
	for range 2 { // twice, and at once
		go func() { closed <- m.close() }()
	}
	assert.ErrorIs(t, <-m.done, sarama.ErrClosedConsumerGroup, "Run")
	for range 2 {
		assert.NoError(t, <-closed, "Close")
	}
	s.want("claims left", s.held())
	wantNoGoroutines(t)
	assert.Equal(t, 10, s.totalEffects(), "effects")
	assert.Equal(t, int64(10), s.committed(0), "what is committed")
}
