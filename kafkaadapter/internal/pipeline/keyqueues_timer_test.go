package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A timer fires and its goroutine waits for the lock while Drain takes the queue's
// items: what it then finds must not be taken for a queue that waits.
func TestTimerThatFiresDuringTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewKeyQueues(t.Context(), KeyQueuesConfig{}, func(context.Context, int) Decision {
			return RetryAfter(time.Hour)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Submit([]byte("a"), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		q := l.byKey["a"]
		if left := l.Drain(t.Context()); len(left.Pending) != 1 {
			t.Fatalf("left %+v", left)
		}
		l.unpark(q)
		if got := l.Stats(); got != (KeyQueueStats{}) || l.ready.len() != 0 {
			t.Errorf("the timer woke a drained queue: %+v, %d ready", got, l.ready.len())
		}
	})
}
