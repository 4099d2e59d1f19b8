package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// ranges is a range handler that notes what it was given.
type ranges struct {
	mu   sync.Mutex
	seen []string
	fail func(r *kafkaadapter.Range) error
}

func (h *ranges) handle(_ context.Context, r *kafkaadapter.Range) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Topic != topic || r.TopicID != "AQAAAAAAAAAAAAAAAAAAAA" || r.Partition != 0 ||
		r.Messages[0].Offset != r.From || r.Messages[len(r.Messages)-1].Offset != r.To-1 {
		h.seen = append(h.seen, fmt.Sprintf("not a range: %+v", r))
	}
	h.seen = append(h.seen, fmt.Sprintf("%d-%d:%d", r.From, r.To, len(r.Messages)))
	if h.fail == nil {
		return nil
	}
	return h.fail(r)
}

func withRanges(h *ranges) func(*rig, *kafkaadapter.Config) {
	return func(r *rig, c *kafkaadapter.Config) {
		unclaimed(r, c)
		c.Handler, c.RangeHandler = nil, h.handle
		c.Order = kafkaadapter.ByPartition
	}
}

// Ranges follow each other whatever the keys are, over the log's own gaps.
func TestRangesFollowEachOther(t *testing.T) {
	h := &ranges{}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		withRanges(h)(r, c)
		c.Tuning.BatchMax = 4
	}, func(r *rig) {
		for i := range int64(10) {
			// a gap after five
			r.group.add(at(0, 100+i+i/5*20, message(fmt.Sprint(i), fmt.Sprint(i%3))))
		}
		r.after(time.Second)
		r.wantCommitted(130)
	})
	assert.Equal(t, []string{"100-104:4", "104-128:4", "128-130:2"}, h.seen)
}

// A range that fails is handled again message by message, before anything behind it. A message
// that fails for good is put aside in its turn.
func TestRangeFails(t *testing.T) {
	var parked []string
	h := &ranges{fail: func(r *kafkaadapter.Range) error {
		if r.From <= 2 && 2 < r.To {
			return dedup.Permanent(errBroken)
		}
		return nil
	}}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		withRanges(h)(r, c)
		c.Tuning.BatchMax = 4
		c.Park = func(_ context.Context, m *kafkaadapter.Message, reason error) error {
			parked = append(parked, fmt.Sprint(m.Offset, errors.Is(reason, errBroken)))
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seen = append(h.seen, "parked")
			return nil
		}
	}, func(r *rig) {
		r.group.add(ids(7)...)
		r.after(10 * time.Second)
		r.wantCommitted(7)
	})
	assert.Equal(t, []string{"0-4:4", "0-1:1", "1-2:1", "2-3:1", "parked", "3-4:1", "4-7:3"},
		h.seen)
	assert.Equal(t, []string{"2 true"}, parked)
}
