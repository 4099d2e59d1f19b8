package kafkasegmentio

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// owner gives every partition to the member that asks for it.
type owner struct {
	mu       sync.Mutex
	asked    []kafkaadapter.Assigned
	released int
}

func (o *owner) acquire(_ context.Context, at kafkaadapter.Assigned) (kafkaadapter.Ownership,
	error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, at)
	h := &ownership{o: o}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h, nil
}

type ownership struct {
	o   *owner
	ctx context.Context
	end context.CancelFunc
}

// Context implements kafkaadapter.Ownership.
func (h *ownership) Context() context.Context { return h.ctx }

// Misplaced implements kafkaadapter.Ownership.
func (h *ownership) Misplaced(context.Context) error { return nil }

// Release implements kafkaadapter.Ownership.
func (h *ownership) Release(context.Context) error {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	h.o.released++
	h.end()
	return nil
}

// Partitions are owned, and who owns them is told how many the topic has.
func TestOwn(t *testing.T) {
	r := newRig(t, 2)
	r.produce(0, 0, 20)
	r.produce(1, 100, 20)
	o := &owner{}
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Own = &kafkaadapter.Owning{Acquire: o.acquire, Partitioner: kafkaadapter.Murmur2}
	})
	r.committed()
	m.leave()
	r.once(40)
	require.Len(t, o.asked, 2)
	for _, at := range o.asked {
		assert.Equal(t, int32(2), at.Count)
		assert.Equal(t, group, at.Group)
	}
	assert.Equal(t, 2, o.released)
}

// Positions are ids where messages have none: the topic's UUID is known.
func TestPositions(t *testing.T) {
	r := newRig(t, 1)
	r.free = true
	records := record(0, "x")
	records.Headers = nil
	require.NoError(t, r.client.ProduceSync(t.Context(), records).FirstErr())
	m := r.join(nil, func(c *kafkaadapter.Config) { c.Positions = true })
	r.eventually(func() (bool, string) { return r.totalEffects() == 1, "nothing runs" })
	m.leave()
}
