package kafka_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// A second member joins while handlers run that end within the drain budget. The old owner finishes
// and commits what runs, the rest moves, and nothing runs twice.
func TestRebalanceWhileWorking(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		s := f.scene(t, 3, 4).nobodyDies()
		for p := range int32(4) {
			s.produce(numbered(p, 1000*int(p), 200)...)
		}
		handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
			return backoff.Sleep(ctx, 20*time.Millisecond)
		}
		few := func(mc *memberConfig) { mc.Tuning.Workers = 2 }
		a := s.join(handler, few)
		eventually(t, 10*time.Second, func() (bool, string) {
			return s.totalEffects() > 50, "no progress"
		})
		b := s.join(handler, few)
		eventually(t, 10*time.Second, func() (bool, string) {
			return b.began.Load() > 10, "the second member got nothing to do"
		})
		s.wantMembers(2)
		s.wantAll(20*time.Second, a, b)
	})
}

// The handler outlives the drain, and in the second case the rebalance timeout: its
// partition moves while it runs, and the new owner gets its message. The lease keeps the two
// apart, and there is one effect.
func TestOverlapHasOneEffect(t *testing.T) {
	for _, c := range []struct {
		name string
		hold time.Duration // since the second member joined
	}{{"longer than the drain", 0}, {"longer than the rebalance timeout", 4 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			eachFlavor(t, func(t *testing.T, f flavor) { overlapHasOneEffect(t, f, c.hold) })
		})
	}
}

func overlapHasOneEffect(t *testing.T, f flavor, hold time.Duration) {
	s := f.scene(t, 3, 2).nobodyDies()
	s.produce(numbered(0, 0, 1)...)
	s.produce(numbered(1, 1, 1)...)
	var mu sync.Mutex
	running, together := map[string]int{}, 0
	release := make(chan struct{})
	deaf := func(_ context.Context, m *kafkaadapter.Message) error {
		mu.Lock()
		if running[m.ID]++; running[m.ID] > 1 {
			together++
		}
		mu.Unlock()
		<-release
		mu.Lock()
		defer mu.Unlock()
		running[m.ID]--
		return nil
	}
	short := func(mc *memberConfig) {
		mc.Tuning.Drain, mc.rebalance = 200*time.Millisecond, 3500*time.Millisecond
	}
	a := s.join(deaf, short)
	eventually(t, 10*time.Second, func() (bool, string) {
		return a.running.Load() == 2, "the first member is not at work"
	})
	held := time.After(hold)
	b := s.join(deaf, short)
	// One of the messages is delivered to somebody else while it is being handled.
	eventually(t, 10*time.Second, func() (bool, string) {
		return longer(s, 3), "nobody waits for a message that is in flight"
	})
	<-held
	assert.Zero(t, s.committed(0)+s.committed(1), "offsets of messages that are being handled")
	close(release)
	s.wantAll(15*time.Second, a, b)
	mu.Lock()
	defer mu.Unlock()
	assert.Zero(t, together, "handlers that ran next to another one of their message")
}

// longer reports whether members have waited n times or more for one message in flight.
func longer(s *scene, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.waited {
		if times >= n {
			return true
		}
	}
	return false
}

// Two members have a message with the same id in their partitions. One waits for the other, commits
// nothing, and takes over when the other has died.
func TestOwnerOfTheSameIDDies(t *testing.T) { eachFlavor(t, ownerOfTheSameIDDies) }

func ownerOfTheSameIDDies(t *testing.T, f flavor) {
	s := f.scene(t, 3, 2)
	handlerOf := func(block chan struct{}) func(context.Context, *kafkaadapter.Message) error {
		return func(ctx context.Context, _ *kafkaadapter.Message) error {
			select {
			case <-block:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	members := make(map[string]*member)
	blocks := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	for name, block := range blocks {
		members[name] = s.join(handlerOf(block))
	}
	s.wantMembers(2)
	s.produce(record{id: "same", partition: 0, key: "k"},
		record{id: "same", partition: 1, key: "k"})
	eventually(t, 10*time.Second, func() (bool, string) { return longer(s, 2), "nobody waits" })
	owner, other := "a", "b"
	if members["b"].running.Load() > 0 {
		owner, other = other, owner
	}
	require.Equal(t, int64(1), members[owner].running.Load(), "handlers of the owner")
	require.Zero(t, members[other].running.Load(), "handlers of the other one")
	assert.Zero(t, s.committed(0)+s.committed(1), "committed while the message is in flight")
	members[owner].crash()
	eventually(t, 10*time.Second, func() (bool, string) {
		return members[other].running.Load() == 1, "the message was not taken over"
	})
	eventually(t, 10*time.Second, func() (bool, string) {
		return members[owner].running.Load() == 0, "the owner's handler was not canceled"
	})
	close(blocks[other])
	s.wantAll(10*time.Second, members[other])
}
