package pipeline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// Items that were not started come back at once, and those that run continue undisturbed until
// they are drained.
func TestHaltHandsBackWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1}, s.process)
		submit(t, l, item{"a", 3}, item{"a", 1}, item{"b", 1})
		synctest.Wait()
		start := time.Now()
		left := l.Halt()
		if time.Since(start) != 0 {
			t.Errorf("halted in %v, want at once", time.Since(start))
		}
		if len(left.Pending) != 2 || len(left.Running) != 1 || left.Running[0] != (item{"a", 3}) {
			t.Errorf("halted with %+v, want a/1 and b/1 pending, a/3 running", left)
		}
		if err := l.Submit([]byte("c"), item{"c", 1}); err == nil {
			t.Error("an item was taken after Halt")
		}
		left = l.Drain(within(t, time.Minute))
		if len(left.Pending) != 0 || len(left.Running) != 0 {
			t.Errorf("drained with %+v, want nothing", left)
		}
		if len(s.finished) != 1 || len(s.causes) != 0 {
			t.Errorf("finished %v, cancelled %v; want a/3 alone to finish", s.finished, s.causes)
		}
	})
}

// An item that runs when the queues are halted, and wants to be run again, is pending in
// the answer of Drain, once.
func TestHaltThenRetryIsPendingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := false
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1}, func(context.Context,
			item) pipeline.Decision {
			<-time.After(time.Second)
			retry = true
			return pipeline.RetryAfter(time.Millisecond)
		})
		submit(t, l, item{"a", 1})
		synctest.Wait()
		if left := l.Halt(); len(left.Pending) != 0 || len(left.Running) != 1 {
			t.Errorf("halted with %+v, want a/1 running", left)
		}
		time.Sleep(time.Minute)
		left := l.Drain(within(t, time.Minute))
		if !retry || len(left.Pending) != 1 || len(left.Running) != 0 {
			t.Errorf("drained with %+v, want a/1 pending", left)
		}
	})
}
