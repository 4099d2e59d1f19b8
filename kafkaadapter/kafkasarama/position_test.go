package kafkasarama

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// bare is a message without an id of its own.
func bare(key string) *sarama.ConsumerMessage { return &sarama.ConsumerMessage{Key: []byte(key)} }

// A consumer reports every message without an id, even if it is parked, positioned or unclaimed.
func TestMissingIDIsTold(t *testing.T) {
	for name, change := range map[string]func(*kafkaadapter.Config){
		"parked": func(c *kafkaadapter.Config) {
			c.Park = func(context.Context, *kafkaadapter.Message, error) error { return nil }
		},
		"positioned": func(c *kafkaadapter.Config) { c.Positions = true },
		"unclaimed":  func(c *kafkaadapter.Config) { c.Unclaimed = true },
	} {
		t.Run(name, func(t *testing.T) {
			var missing []int64
			inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
				r.group.finished = nil
				c.Observer.MissingID = func(m *kafkaadapter.Message) {
					missing = append(missing, m.Offset)
				}
				change(c)
			}, func(r *rig) {
				r.group.add(message("a", ""), bare("k"), message("b", ""))
				r.after(time.Second)
				r.wantCommitted(3)
			})
			assert.Equal(t, []int64{1}, missing)
		})
	}
}

// Messages have different ids if any part of their positions differs; nothing else counts. A
// message with an id keeps it.
func TestPositionIDs(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // ids by the message's value
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		mu.Lock()
		defer mu.Unlock()
		seen[string(m.Value)] = m.ID
		return nil
	}
	when := time.UnixMilli(1_700_000_000_123)
	inBubble(t, 4, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Positions = true
		r.group.finished = nil
	}, func(r *rig) {
		add := func(value string, partition int32, offset int64, at time.Time, key []byte) {
			r.group.add(&sarama.ConsumerMessage{Value: []byte(value), Partition: partition,
				Offset: offset, Timestamp: at, Key: key})
		}
		add("base", 3, 7, when, nil)
		add("another offset", 3, 8, when, nil)
		add("another partition", 2, 7, when, nil)
		add("another time", 1, 7, when.Add(time.Millisecond), nil)
		add("no time", 0, 7, time.Time{}, nil)
		r.group.add(message("named", ""))
		r.after(2 * time.Second)
		r.coordinator.recreate()
		add("another topic", 3, 7, when, []byte("and another key"))
		r.after(10 * time.Second)
	})
	assert.Equal(t, "position:AQAAAAAAAAAAAAAAAAAAAA/3@7/1700000000123", seen["base"])
	assert.Equal(t, "position:AgAAAAAAAAAAAAAAAAAAAA/3@7/1700000000123", seen["another topic"])
	assert.Equal(t, "named", seen["named"])
	values := map[string]string{}
	for value, id := range seen {
		assert.NotContains(t, values, id, value)
		assert.True(t, msgid.IsKey(id), id)
		values[id] = value
	}
	assert.Len(t, values, 7)
}

// A topic is created again while a group works on it. The same offsets are other messages now, and
// none of them is taken for done. Messages without an id have only their positions.
func TestRecreatedTopicIsNotTakenForDone(t *testing.T) {
	parked := 0
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Positions = true
		c.Park = func(context.Context, *kafkaadapter.Message, error) error { parked++; return nil }
		r.group.finished = nil
	}, func(r *rig) {
		all := func() []*sarama.ConsumerMessage {
			return []*sarama.ConsumerMessage{message("named", ""), bare("a"), bare("b")}
		}
		r.group.add(all()...)
		r.after(time.Second)
		r.wantCommitted(3)
		r.wantRuns("named", 1)

		// A redelivery is a duplicate, by its position.
		r.group.replay()
		r.after(time.Minute)
		r.wantCommitted(3)
		assert.Equal(t, 3, r.totalRuns(), "of 3 messages that came twice")

		// While the brokers do not say which topic it is nothing runs, and nothing is parked.
		r.coordinator.topic.set(func(t *fakeTopic) { t.broken = true })
		r.coordinator.recreate(all()...)
		r.group.rebalance()
		r.after(time.Minute)
		r.wantCommitted(0)
		assert.Equal(t, 3, r.totalRuns(), "the topic is not known")
		r.coordinator.topic.set(func(t *fakeTopic) { t.broken = false })
		r.after(time.Minute)
		r.wantCommitted(3)
		assert.Equal(t, 5, r.totalRuns(), "2 more for the new topic's messages")
		assert.Zero(t, parked)
		r.wantRuns("named", 1)
	})
}

// Positions and fences need topic UUIDs: without them a topic that is created again would look
// done. The consumer reports that, and begins when the brokers have UUIDs.
func TestTopicsNeedUUIDs(t *testing.T) {
	for name, change := range map[string]func(*rig, *kafkaadapter.Config){
		"positions": func(_ *rig, c *kafkaadapter.Config) { c.Positions = true },
		"ranges":    withRanges(&ranges{fail: func(*kafkaadapter.Range) error { return nil }}),
	} {
		t.Run(name, func(t *testing.T) {
			var told toldErrors
			inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
				change(r, c)
				r.group.finished = nil
				r.coordinator.topic.noUUID = true
				c.Observer.GroupError = told.add
			}, func(r *rig) {
				r.group.add(bare("k"), message("a", ""))
				r.after(time.Minute)
				r.wantRunning()
				r.wantCommitted(0)
				assert.Zero(t, r.totalRuns())
				err := errors.Join(told.all()...)
				require.ErrorContains(r.t, err,
					"has no UUID, which Positions and a RangeHandler need: brokers and")
				var input *dedup.InputError
				assert.NotErrorAs(t, err, &input, "it is not an argument")
				r.coordinator.topic.set(func(t *fakeTopic) { t.noUUID = false })
				r.after(10 * time.Second)
				r.wantCommitted(2)
			})
		})
	}
}

// A failed look-up of the topic is reported once, with its reason, and is repeated.
func TestFailedLookUpIsTold(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Positions = true
		r.group.finished = nil
		r.coordinator.topic.broken = true
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		r.group.add(bare("k"))
		r.after(time.Minute)
		r.wantRunning()
		require.Len(r.t, told.all(), 1, "once for an assignment")
		assert.ErrorContains(t, told.all()[0], "orders/0 cannot begin yet")
		assert.ErrorContains(t, told.all()[0], "nobody answers")
		assert.Zero(t, r.totalRuns())
		r.coordinator.topic.set(func(t *fakeTopic) { t.broken = false })
		r.after(10 * time.Second)
		r.wantCommitted(1)
	})
}

// A replayed letter has another position, and keeps its id.
func TestReplayedLetterKeepsItsPosition(t *testing.T) {
	p, broken := &fakeProducer{}, true
	inBubble(t, 1, func(context.Context, *kafkaadapter.Message) error {
		if broken {
			return dedup.Permanent(errBroken)
		}
		return nil
	}, func(r *rig, c *kafkaadapter.Config) {
		c.Positions, c.Park = true, deadLetters(t, p)
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(bare("k"))
		r.after(time.Second)
		require.Len(r.t, p.sent(), 1)
		broken = false
		r.group.add(replayed(r, p.sent()[0]))
		r.after(time.Second)
		r.wantRuns("position:AQAAAAAAAAAAAAAAAAAAAA/0@0/-62135596800000", 2)
		r.wantCommitted(2)
	})
}
