package kafkasarama

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

func withoutID() *sarama.ConsumerMessage { return &sarama.ConsumerMessage{Value: []byte("v")} }

// parkedOffsets are of messages that were put aside, several at a time.
type parkedOffsets struct {
	mu  sync.Mutex
	all []int64
}

func (p *parkedOffsets) park(_ context.Context, m *kafkaadapter.Message, _ error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, m.Offset)
	return nil
}

func (p *parkedOffsets) offsets() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// A topic without ids stops the consumer, with or without Park, and again after a restart. The
// error says what to set. Before, all its messages went to the dead-letter topic silently.
func TestTopicWithoutIDsStops(t *testing.T) {
	var parked parkedOffsets
	for range 2 {
		inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
			c.Park, c.Tuning.Workers = parked.park, 1
		}, func(r *rig) {
			for range 20 {
				r.group.add(withoutID())
			}
			r.after(time.Second)
			err := r.wantEnd()
			var message *kafkaadapter.UnprocessableError
			require.ErrorAs(r.t, err, &message)
			require.ErrorIs(r.t, err, kafkaadapter.ErrNoID)
			assert.ErrorContains(r.t, err, "Config.ID")
			assert.ErrorContains(r.t, err, "Config.Positions")
			assert.NotContains(r.t, err.Error(), "there is no Config.Park")
			r.wantCommitted(0)
		})
	}
	assert.Empty(t, parked.offsets())
}

// With Allow.NoID the messages of such a topic are parked.
func TestTopicWithoutIDsIsParkedWhenAsked(t *testing.T) {
	var parked parkedOffsets
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Park, c.Allow.NoID, c.Tuning.Workers = parked.park, true, 1
		r.group.finished = nil
	}, func(r *rig) {
		for range 5 {
			r.group.add(withoutID())
		}
		r.after(time.Second)
		r.wantRunning()
		r.wantCommitted(5)
	})
	assert.Len(t, parked.offsets(), 5)
}

// After a restart the first message may be the odd one of a healthy topic. It waits for a message
// with an id, and is parked then.
func TestOddMessageOfAHealthyTopicIsParked(t *testing.T) {
	var parked parkedOffsets
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Park, c.Tuning.Workers = parked.park, 1
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(withoutID(), withoutID())
		r.after(time.Minute)
		r.wantRunning()
		r.wantCommitted(0)
		assert.Empty(r.t, parked.offsets())
		r.group.add(message("good", "k"))
		r.after(time.Second)
		r.wantRuns("good", 1)
		r.wantCommitted(3)
		for range 5 { // a bad producer among good ones
			r.group.add(withoutID())
		}
		r.after(time.Second)
		r.wantRunning()
		r.wantCommitted(8)
	})
	assert.Len(t, parked.offsets(), 7)
}
