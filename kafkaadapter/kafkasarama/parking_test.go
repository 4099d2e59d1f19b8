package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// deadTopic is a dead-letter topic that does not exist until it is made. Each letter waits half a
// minute for it, as with a client that continues to look for the topic.
type deadTopic struct {
	made        chan struct{}
	mu          sync.Mutex
	calls, most int
	parked      int
}

func (d *deadTopic) park(ctx context.Context, _ *kafkaadapter.Message, _ error) error {
	d.mu.Lock()
	d.calls++
	d.most = max(d.most, d.calls)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls--
	}()
	select {
	case <-d.made:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.parked++
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("unknown topic or partition")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// One message in twenty is poison, and the dead-letter topic is missing. Healthy messages do not
// wait for it: two workers, which the letters used to block, handle all of them in the time that
// one letter takes. When the topic is made, each letter is there once.
func TestMissingDeadLetterTopicSlowsNobody(t *testing.T) {
	const n = 2000
	d := &deadTopic{}
	var healthy atomic.Int64
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Offset%20 == 0 {
			return dedup.Permanent(errBroken)
		}
		healthy.Add(1)
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		d.made = make(chan struct{}) // in the bubble
		c.Park, c.Tuning.Workers = d.park, 2
	}, func(r *rig) {
		for i := range n {
			r.group.add(message(fmt.Sprint("id", i), fmt.Sprint("k", i)))
		}
		r.after(20 * time.Second)
		assert.EqualValues(r.t, n-n/20, healthy.Load(),
			"healthy messages were handled while the first letter waits")
		r.wantCommitted(0)
		r.after(10 * time.Minute) // probes
		assert.LessOrEqual(r.t, d.most, 16)
		d.mu.Lock()
		assert.LessOrEqual(r.t, d.calls, 1, "calls while they fail")
		d.mu.Unlock()
		close(d.made)
		r.after(time.Minute)
		assert.Equal(r.t, n/20, d.parked)
		r.wantCommitted(n)
		assert.Equal(r.t, n, r.totalRuns())
	})
}
