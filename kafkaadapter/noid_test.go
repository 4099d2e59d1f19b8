package kafkaadapter

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func withoutID() *sarama.ConsumerMessage { return &sarama.ConsumerMessage{Value: []byte("v")} }

func parkOffsets(parked *[]int64) func(context.Context, *Message, error) error {
	return func(_ context.Context, m *Message, _ error) error {
		*parked = append(*parked, m.Offset)
		return nil
	}
}

// A topic without ids was moved to the dead-letter topic without a word. It stops the consumer
// now, Park or not, and the error says what to set; so does a restart.
func TestTopicWithoutIDsStops(t *testing.T) {
	var parked []int64
	for range 2 {
		inBubble(t, 1, nil, func(_ *rig, c *Config) { c.Park, c.Workers = parkOffsets(&parked), 1 }, func(r *rig) {
			for range 20 {
				r.group.add(withoutID())
			}
			r.after(time.Second)
			err := r.wantEnd()
			var message *UnprocessableError
			require.ErrorAs(r.t, err, &message)
			require.ErrorIs(r.t, err, ErrNoID)
			assert.ErrorContains(r.t, err, "Config.ID")
			assert.ErrorContains(r.t, err, "Config.Positions")
			assert.NotContains(r.t, err.Error(), "there is no Config.Park")
			r.wantCommitted(0)
		})
	}
	assert.Empty(t, parked)
}

// It is put aside where that is asked for.
func TestTopicWithoutIDsIsParkedWhenAsked(t *testing.T) {
	var parked []int64
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		c.Park, c.AllowNoID, c.Workers = parkOffsets(&parked), true, 1
		r.group.finished = nil
	}, func(r *rig) {
		for range 5 {
			r.group.add(withoutID())
		}
		r.after(time.Second)
		r.wantRunning()
		r.wantCommitted(5)
	})
	assert.Len(t, parked, 5)
}

// After a restart the first message may be the odd one of a healthy topic: it waits for one
// with an id, and is put aside then.
func TestOddMessageOfAHealthyTopicIsParked(t *testing.T) {
	var parked []int64
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		c.Park, c.Workers = parkOffsets(&parked), 1
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(withoutID(), withoutID())
		r.after(time.Minute)
		r.wantRunning()
		r.wantCommitted(0)
		assert.Empty(r.t, parked)
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
	assert.Len(t, parked, 7)
}
