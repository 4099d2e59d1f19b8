package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A timer fires, and its goroutine waits for the lock while Drain takes the queue's items. The
// timer must not make the drained queue ready.
func TestTimerThatFiresDuringTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewKeyQueues(t.Context(), KeyQueuesConfig{}, func(context.Context, int) Decision {
			return RetryAfter(time.Hour)
		})
		require.NoError(t, err)
		require.NoError(t, l.Submit([]byte("a"), 1))
		synctest.Wait()
		q := l.all.first
		require.Len(t, l.Drain(t.Context()).Pending, 1)
		l.unpark(q)
		assert.Zero(t, l.Stats(), "the timer woke a drained queue")
		assert.Zero(t, l.ready.len(), "queues that are ready")
	})
}
