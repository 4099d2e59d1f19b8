package flow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A timer fires and its goroutine waits for the lock while Drain takes the lane's
// items: what it then finds must not be taken for a lane that waits.
func TestTimerThatFiresDuringTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLanes(t.Context(), LanesConfig{}, func(context.Context, int) Verdict {
			return RetryAfter(time.Hour)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Submit([]byte("a"), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		lane := l.byKey["a"]
		if left := l.Drain(t.Context()); len(left.Pending) != 1 {
			t.Fatalf("left %+v", left)
		}
		l.unpark(lane)
		if got := l.Stats(); got != (LaneStats{}) || l.ready.len() != 0 {
			t.Errorf("the timer woke a drained lane: %+v, %d ready", got, l.ready.len())
		}
	})
}
