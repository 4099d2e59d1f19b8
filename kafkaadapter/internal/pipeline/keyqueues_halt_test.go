package pipeline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
		assert.Zero(t, time.Since(start), "it halts at once")
		assert.Len(t, left.Pending, 2, "a/1 and b/1")
		assert.Equal(t, []item{{"a", 3}}, left.Running)
		assert.Error(t, l.Submit([]byte("c"), item{"c", 1}), "an item was taken after Halt")
		left = l.Drain(within(t, time.Minute))
		assert.Empty(t, left.Pending)
		assert.Empty(t, left.Running)
		assert.Len(t, s.finished, 1, "a/3 alone finishes")
		assert.Empty(t, s.causes, "what was canceled")
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
		left := l.Halt()
		assert.Empty(t, left.Pending)
		assert.Len(t, left.Running, 1, "a/1")
		time.Sleep(time.Minute)
		left = l.Drain(within(t, time.Minute))
		assert.True(t, retry)
		assert.Len(t, left.Pending, 1, "a/1")
		assert.Empty(t, left.Running)
	})
}
