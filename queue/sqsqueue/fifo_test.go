package sqsqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/queuetest"
)

// Messages of one group are handled one at a time, and each has its effect once, although it was
// sent twice and its first run fails. The tests with the tag long have the whole suite.
func TestFIFO(t *testing.T) {
	q := newQueue(t, servertest.Moto(t), "orders", ".fifo", false)
	var all []queuetest.Message
	for i := range 30 {
		all = append(all, queuetest.Message{ID: fmt.Sprint("order-", i),
			Key: fmt.Sprint("shop-", i%10)})
	}
	q.Send(t, append(all, all...)...)

	var mu sync.Mutex
	busy, runs := map[string]bool{}, map[string]int{}
	d, err := dedup.New(dedup.Memory(100), dedup.Config{Namespace: "fifo", Window: time.Hour,
		LeaseTTL: time.Minute})
	require.NoError(t, err)
	consumer, err := queue.New(queue.Config{Deduper: d, Workers: 8,
		Handler: func(ctx context.Context, d *queue.Delivery) error {
			mu.Lock()
			assert.False(t, busy[d.Key], "two messages of %s are at work", d.Key)
			busy[d.Key] = true
			mu.Unlock()
			select { // so that another one of the group would be seen
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			busy[d.Key] = false
			if runs[d.ID]++; runs[d.ID] == 1 {
				return queue.RetryAfter(time.Millisecond, errors.New("fails once"))
			}
			return nil
		}})
	require.NoError(t, err)
	src, cut := q.Connect(t)
	defer cut()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx, src) }()
	assert.Eventually(t, func() bool { return q.Left(t) == 0 }, 3*time.Minute, 50*time.Millisecond,
		"messages are left")
	stop()
	require.NoError(t, <-ended)
	for _, m := range all {
		assert.Equal(t, 2, runs[m.ID], "runs of %s", m.ID)
	}
}
