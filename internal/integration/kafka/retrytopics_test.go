package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// TestRetryTopics: some messages fail once or twice. Each is tried again after the delay and has
// one effect. The messages behind it do not wait.
func TestRetryTopics(t *testing.T) { eachFlavor(t, retryTopics) }

func retryTopics(t *testing.T, f flavor) {
	const n, delay = 30, time.Second
	s := f.scene(t, 3, 1).nobodyDies()
	s.early = true // a message that is sent on is not on record below its offset
	brokers := s.cluster.ListenAddrs()
	topics := []string{sceneTopic, sceneTopic + ".1", sceneTopic + ".2"}
	for _, topic := range topics[1:] {
		createTopic(t, brokers, topic, 2, 1)
	}
	once, twice := idOf(5), idOf(11)
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		mu.Lock()
		defer mu.Unlock()
		seen[m.ID] = append(seen[m.ID], time.Now())
		assert.Equal(t, len(seen[m.ID]), m.Attempt, "attempt of %s", m.ID)
		assert.Equal(t, topics[len(seen[m.ID])-1], m.Topic, "topic of %s", m.ID)
		assert.Equal(t, sceneTopic, m.FirstTopic, "first topic of %s", m.ID)
		if m.ID == once && m.Attempt < 2 || m.ID == twice && m.Attempt < 3 {
			return errors.New("not now")
		}
		return nil
	}
	records := numbered(0, 0, n)
	for i := range records {
		records[i].key = "the same" // nothing waits for a message that fails
	}
	s.produce(records...)
	producer := f.producer(t, brokers)
	m := s.join(handler, func(mc *memberConfig) {
		mc.topics = topics
		mc.Attempts.Producer = producer
		mc.Attempts.Delayed = []kafkaadapter.DelayedTopic{{Topic: topics[1], Delay: delay},
			{Topic: topics[2], Delay: delay}}
	})
	eventually(t, 20*time.Second, func() (bool, string) {
		return s.totalEffects() == n-2 && s.committed(0) == n,
			fmt.Sprintf("%d effects, committed %d", s.totalEffects(), s.committed(0))
	})
	eventually(t, 20*time.Second, func() (bool, string) {
		return s.totalEffects() == n, fmt.Sprintf("%d effects", s.totalEffects())
	})
	m.leave(t)
	s.wantOnce()
	mu.Lock()
	defer mu.Unlock()
	for id, times := range seen {
		for i := 1; i < len(times); i++ {
			assert.GreaterOrEqual(t, times[i].Sub(times[i-1]), delay*9/10, "%s, attempt %d", id,
				i+1)
		}
	}
}
