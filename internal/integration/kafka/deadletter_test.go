package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// The dead-letter topic of a poison message is down. Until it is back, only the committed offset
// and the messages of the same key wait. When the handler is fixed, the letter can be read and sent
// back. The message then runs again, under the id that it had.
func TestPoisonAndItsReplay(t *testing.T) { eachFlavor(t, poisonAndItsReplay) }

func poisonAndItsReplay(t *testing.T, f flavor) {
	const n, deadTopic = 40, sceneTopic + ".dead"
	poison := idOf(5)
	s := f.scene(t, 3, 1).nobodyDies()
	brokers := s.cluster.ListenAddrs()
	createTopic(t, brokers, deadTopic, 1, 1)
	down := s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: deadTopic,
		Err: kerr.NotEnoughReplicas, Count: -1})
	var fixed atomic.Bool
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == poison && !fixed.Load() {
			return dedup.Permanent(errors.New("cannot be charged"))
		}
		return nil
	}
	records := numbered(0, 0, n)
	records[6].key, records[7].key = records[5].key, records[5].key // they wait for the poison
	s.produce(records...)
	m := s.join(handler, func(mc *memberConfig) { mc.deadTopic = deadTopic })
	eventually(t, 15*time.Second, func() (bool, string) {
		// one letter is tried four times
		return s.totalEffects() == n-3 && s.committed(0) == 5 && down.Hits() > 6,
			fmt.Sprintf("%d effects, committed %d, %d letters refused", s.totalEffects(),
				s.committed(0), down.Hits())
	})
	assert.Zero(t, s.effectsOf(idOf(6))+s.effectsOf(idOf(7)),
		"messages behind the poison, of its key, were handled before its letter was kept")
	down.Remove()
	s.wantCommittedToEnd(15 * time.Second)

	letter := readOne(t, brokers, deadTopic)
	for key, want := range map[string]string{
		kafkaadapter.HeaderID: poison, kafkaadapter.HeaderTopic: sceneTopic,
		kafkaadapter.HeaderOffset: "5", kafkaadapter.HeaderError: "cannot be charged",
	} {
		assert.Equal(t, want, letter.Header(key), key)
	}
	fixed.Store(true)
	back, err := kafkaadapter.Replay(t.Context(), m.dedup, letter)
	require.NoError(t, err)
	s.log[0] = append(s.log[0], poison)
	s.oracle.expect(s.log)
	require.NoError(t, saramaProducer(t, brokers).Send(t.Context(), back))
	s.wantCommittedToEnd(15 * time.Second)
	_, err = kafkaadapter.Replay(t.Context(), m.dedup, letter)
	assert.ErrorIs(t, err, kafkaadapter.ErrSettled, "the letter has succeeded")
	m.leave(t)
	s.wantOnce()
}

// readOne returns the first message of a topic.
func readOne(t *testing.T, brokers []string, topic string) *kafkaadapter.Message {
	t.Helper()
	c, err := sarama.NewConsumer(brokers, clientConfig())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	return kafkasarama.Message(waitFor(t, p.Messages(), "no letter"))
}
